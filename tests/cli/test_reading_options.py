"""Every option of a command that reads saved studies changes what it prints."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from polybench.storage.store import Store
from tests.cli.test_arguments import parameters_of
from tests.commands import invoke, printed
from tests.factories import measured, study
from tests.log_of import save_document

A, B = "20250101-000000-aaaa", "20250202-000000-bbbb"
READERS = {
    "show": f"show {A}",
    "diff": f"diff {A} {B}",
    "explain": f"explain {A}",
    "history": "history",
    "merge": f"merge {A} {B}",
    "list": "list",
}
_OLDER = [  # the filters that select A alone
    *("--engine tf", "--host here", "--since 2025-01-01 --until 2025-01-31", "--until 2025-01-01"),
    *("--version tf=2.19", "--title nigh*", "--tag ci"),
]
_NEWER = [
    *("--engine jax", "--device cuda", "--host there", "--since 2025-02-02", "--version jax=0.9.1"),
    *("--title weekly", "--tag lr=1"),
]
EFFECTS = [
    *((command, option, "", "jax/cuda") for command in ("list", "history") for option in _OLDER),
    *((command, option, "", "tf/cpu") for command in ("list", "history") for option in _NEWER),
    ("list", "--model mnist*", "no saved study matches", "tf/cpu"),
    ("history", "--model mnist*", "no ranked configuration", "tf/cpu"),
    ("show", "--price cpu=3.6", "cost per", ""),
    ("show", "--baseline tf/cpu", "speed vs. tf", "speed vs. torch"),
    ("show", "--columns startup", "", "images/s"),
    ("show", "--notes", "3 processes x 2 rounds x 3 steps", "polybench show ID --notes"),
    ("show", "--methods", "", "images/s"),
    ("show", "--anonymous", '"hostname": "<host>"', '"hostname": "here"'),
    ("show", "--tolerance 50%", '"tolerance": 0.5', '"tolerance": 0.01'),
    ("diff", "--tolerance 7%", "tolerance 7%", "tolerance 1%"),
    ("diff", "--same-machine", "", "different machine"),
    ("explain", "--baseline tf/cpu", '"baseline": "tf/cpu"', ""),
    ("explain", "--suggest", "polybench layers", "--suggest"),
    ("history", "--tolerance 7%", '"tolerance": 0.07', '"tolerance": 0.01'),
    ("merge", "--baseline there:jax/cuda", "baseline there:jax/cuda", "baseline here:torch/cpu"),
    ("merge", "--price here:cpu=3.6", "cost", ""),
]
"""Command, option, what only its output has, and what only the output without it has."""
AS_JSON = {"explain --baseline tf/cpu", "show --anonymous", "show --tolerance 50%", "history --tolerance 7%"}
"""What the table does not show."""
ELSEWHERE = {
    "show": {"study", "salvage", "title", "tag", "published", "quiet"},
    "diff": {"a", "b", "fail_if"},
    "explain": {"study"},
    "merge": {"studies"},
    "list": {"show_points"},
}
"""Parameters that the tests of these commands have."""
ALL = {"format", "output", "results"}


@pytest.fixture(autouse=True)
def saved(own_folders: Path) -> Path:
    """Two studies that differ in everything that a filter selects."""
    store = Store(own_folders / "results")
    a = study(
        measured("torch/cpu", 0.0165, versions={"torch": "2.13.0"}),
        measured("tf/cpu", 0.010, versions={"tf": "2.19.0"}),
    )
    a.id, a.created, a.title, a.tags, a.host.hostname = A, "2025-01-01T10:00:00Z", "nightly", ["ci"], "here"
    b = study(
        measured("torch/cpu", 0.0165, versions={"torch": "2.13.0"}),
        measured("jax/cuda", 0.030, versions={"jax": "0.9.1"}),
    )
    b.id, b.created, b.title, b.tags, b.host.hostname = B, "2025-02-02T10:00:00Z", "weekly", ["lr=1"], "there"
    for one in (a, b):
        save_document(store, one)
    return store.folder


def output(command: str, *options: str) -> str:
    return printed(*shlex.split(" ".join((READERS[command], *options))))


@pytest.mark.parametrize(("command", "option", "present", "absent"), EFFECTS)
def test_an_option_changes_what_is_printed(command: str, option: str, present: str, absent: str) -> None:
    form = "--format json" if f"{command} {option}" in AS_JSON else ""
    default, changed = output(command, form), output(command, option, form)
    assert not present or (present in changed and present not in default)
    assert not absent or (absent in default and absent not in changed)


@pytest.mark.parametrize("command", [name for name in READERS if name != "list"])
def test_a_result_is_written_to_a_file_in_the_format_of_its_ending(command: str, tmp_path: Path) -> None:
    text, file = output(command, "--format json"), tmp_path / "out.json"
    assert output(command, f"--output {file} --format json") == ""
    assert file.read_text() == text
    assert invoke(*READERS[command].split(), "--output", tmp_path / "missing/file").exit_code != 0


@pytest.mark.parametrize("command", READERS)
def test_studies_are_read_from_the_given_folder(command: str, saved: Path) -> None:
    here, elsewhere = output(command), saved.with_name("elsewhere")
    saved.rename(elsewhere)
    assert output(command, f"--results {elsewhere}") == here
    without = invoke(*READERS[command].split())
    assert without.exit_code != 0 or without.stdout.startswith("no ")


@pytest.mark.parametrize("command", READERS)
def test_every_option_has_its_effect_here_or_elsewhere(command: str) -> None:
    flags = parameters_of(command)
    here = {
        name for name, flag in flags.items() for one, option, *_ in EFFECTS if one == command and flag in option.split()
    }
    assert here | ALL | ELSEWHERE.get(command, set()) >= flags.keys()
