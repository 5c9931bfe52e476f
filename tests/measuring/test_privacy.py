"""What a document tells of a person, a machine, and the environment that it was measured in."""

from __future__ import annotations

import getpass
import json
import socket
import sys
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.core.document.study import to_json
from polybench.core.spec import Study
from polybench.measuring import limit
from polybench.measuring.study import new_context, run_study
from polybench.report import anonymous as module
from polybench.report.anonymous import anonymous
from polybench.report.saved_studies import Store
from polybench.wire.environment import recorded
from tests import small
from tests.factories import measured, study
from tests.measuring.test_study import FAST, Listener, run, small_data

__all__ = ["small_data"]

CANARY = "canary-5f1e"


def test_no_secret_of_the_environment_is_in_a_document_or_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "AWS_SECRET_ACCESS_KEY",
        "MY_PASSWORD",
        "TF_API_TOKEN",
        "TF_VAR_db",
        "JULIA_PKG_AUTH",
        "HARMLESS",
        "https_proxy",
    ):
        monkeypatch.setenv(name, CANARY)
    monkeypatch.setenv("KMP_BLOCKTIME", "7")
    document = run("fake", "fake+crash", store=Store(tmp_path), processes=1, rounds=1, parity=False)
    assert document.results[0].versions["inherited"]["KMP_BLOCKTIME"] == "7"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.suffix == ".log" for path in files)
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]


def test_what_engines_read_and_nobody_sets_is_recorded() -> None:
    user = {
        "OMP_NUM_THREADS": "9",
        "OMP_SCHEDULE": "static",
        "LD_PRELOAD": "x.so",
        "EDITOR": "vi",
        "MALLOC_X": "1",
        "CXX": "clang++",
        "CXXFLAGS": "-O0",
        "CC": "clang",
        "CCACHE_DIR": "somewhere",
    }
    assert recorded(user, {"OMP_NUM_THREADS": "2"}) == {
        "CC": "clang",
        "CXX": "clang++",
        "LD_PRELOAD": "x.so",
        "OMP_SCHEDULE": "static",
    }


def test_an_anonymous_study_names_no_host_user_or_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "marys-laptop")
    monkeypatch.setattr(getpass, "getuser", lambda: "mary")
    folder = tmp_path / "home" / "mary"
    folder.mkdir(parents=True)
    data = small.cifar_folder(folder, 100)
    wanted = Study(engines=("fake", "fake+crash"), data=str(data), batch_size=16, **(FAST_ONCE))
    store = Store(folder / "results")
    argv = ["compare", "--data", str(data), "--results", f"{folder}/results"]
    document = run_study(wanted, Listener(), store=store, context=new_context(argv, anonymous=True))
    (path,) = store.folder.glob("*.json")
    for text in (to_json(document).decode(), path.read_text()):
        assert "mary" not in text
        assert str(tmp_path) not in text
    assert document.host.hostname == "<host>"
    assert document.argv[2] == "<folder>/cifar"
    assert (document.results[1].log or "").startswith("<folder>/fake+crash")


FAST_ONCE = {
    name: value
    for name, value in (FAST | {"processes": 1, "rounds": 1, "parity": False}).items()
    if name != "data"
}


def test_nothing_else_of_a_document_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_names", lambda _: [])
    document = study()
    document.host.hostname = "<host>"
    document.argv = ["compare", "--baseline", "torch/cpu/bf16", "--price", "cpu=0.24", "~/data"]
    document.warnings = ["see https://example.org/a/b/c, 1/2 of it", "<folder>/data/x is torch/cpu/bf16"]
    assert msgspec.to_builtins(anonymous(document)) == msgspec.to_builtins(document)


@pytest.mark.parametrize(
    "command",
    [
        ["layers", "--processes", "1", "--rounds", "2", "--steps", "5"],
        ["sweep", "--batch-size", "8,16", "--processes", "1", "--rounds", "1", "--steps", "5"],
        ["overhead", "--batch-size", "8,16", "--processes", "1", "--rounds", "1", "--steps", "5"],
        ["allocations"],
        ["parity"],
        ["limit", "--batch-size", "8"],
    ],
    ids=lambda command: command[0],
)
def test_no_command_that_measures_names_who_it_was(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "marys-laptop")
    monkeypatch.setitem(limit.SIZES, "cpu", (64,))
    monkeypatch.setattr(limit, "last_level_bytes", lambda threads: 1 << 16)
    name, *options = command
    output = tmp_path / "document.json"
    told = ["--engines", "fake", "--anonymous", "--format", "json", "--output", str(output), "--quiet"]
    monkeypatch.setattr(sys, "argv", ["polybench", name, *options, *told])
    done = CliRunner().invoke(app, sys.argv[1:])
    assert done.exit_code in (0, 4), done.output
    text = output.read_text()
    assert json.loads(text)["host"]["hostname"] == "<host>"
    assert "marys-laptop" not in text
    assert str(tmp_path) not in text


def test_what_is_saved_is_shown_without_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = study(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01))
    document.host.hostname = "marys-laptop"
    document.argv = ["compare", "--data", str(tmp_path / "cifar")]
    document.warnings = [f"marys-laptop is busy with {tmp_path}/a.out"]
    Store(tmp_path).save(document)

    def printed(*command: str) -> str:
        output = tmp_path / "out.html"
        done = CliRunner().invoke(app, [*command, "--results", str(tmp_path), "--output", str(output)])
        assert done.exit_code == 0, done.output
        return output.read_text()

    for command in (["show", "last", "--format", "json"], ["report", "last"], ["plot", "last"]):
        assert command[0] == "plot" or "marys-laptop" in printed(*command)
        text = printed(*command, "--anonymous")
        assert "marys-laptop" not in text
        assert str(tmp_path) not in text


HOME = "/home/Mary Shelley/My Lab: 1"


@pytest.mark.parametrize(
    ("word", "left"),
    [
        (f"-o{HOME}/out.svg", "-o<folder>/out.svg"),
        (f"--data={HOME}/cifar", "--data=<folder>/cifar"),
        (f"old={HOME}/venv", "old=<folder>/venv"),
        (f"{HOME}/My Data", "<folder>/My Data"),
        (f"file://{HOME}/x.json", "file://<folder>/x.json"),
        ("/home//mary//x/", "<folder>/x/"),
    ],
)
def test_a_word_of_the_command_line_may_be_a_path_of_any_kind(word: str, left: str) -> None:
    document = study()
    document.argv = [word]
    assert anonymous(document).argv == [left]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("cannot read file:///home/mary/a/x.png", "cannot read <folder>/x.png"),
        (f"cannot read '{HOME}/a b/x.png'", "cannot read '<folder>/x.png'"),
        (f"cannot write {HOME}/results: no room", "cannot write <folder>/results: no room"),
        (f"log in {HOME}/results/logs/my id/x.log", "log in <folder>/x.log"),
        (f"{HOME}/data/a.png and /home/mary/b.png", "<folder>/a.png and <folder>/b.png"),
        ("gcc -I/home/mary/include/julia -L/home/mary/lib/x", "gcc -I<folder>/julia -L<folder>/x"),
    ],
)
def test_a_text_may_name_folders_with_blanks_and_colons(text: str, left: str) -> None:
    document = study()
    document.study = msgspec.toml.encode({"data": f"{HOME}/data", "env": {"old": f"{HOME}/venv"}}).decode()
    document.warnings = [text]
    changed = anonymous(document, Path(f"{HOME}/results"))
    assert changed.warnings == [left]
    assert "Shelley" not in changed.study


def test_the_host_of_a_document_from_elsewhere_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "here.example.org")
    document = study()
    document.host.hostname = "frankenstein.lab"
    document.warnings = ["frankenstein is busy, frankenstein.lab too, and here is not"]
    changed = anonymous(document)
    assert changed.warnings == ["<host> is busy, <host> too, and <host> is not"]
    assert anonymous(changed) == changed


def test_a_user_without_a_home_or_a_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> str:
        raise RuntimeError("Could not determine home directory.")

    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.setattr(getpass, "getuser", nobody)
    monkeypatch.delenv("HOME", raising=False)
    assert anonymous(study()).host.hostname == "<host>"
