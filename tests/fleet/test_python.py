"""Fleets from Python, on this machine."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Required, get_type_hints

import pytest

import polybench
from polybench.api import MachineKeys, MachinesResult, StudyResult
from polybench.api.options import told
from polybench.core.errors import BadInput
from polybench.core.machines import MachineGroup
from polybench.report.saved_studies import Store
from tests.fleet.fleets import FIELDS, study

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return FIELDS | {"data": study(folder).data, "processes": 1} | more


def test_one_machine_gives_what_it_gives_here(tmp_path: Path) -> None:
    lines: list[str] = []
    there = polybench.compare(on="local", progress=lines.append, **options(tmp_path))
    assert lines[0] == "looking at the machines of local"
    assert isinstance(there, StudyResult)
    here = polybench.compare(**options(tmp_path))
    assert [(row["cell"], row["status"]) for row in there.rows()] == [("fake/cpu", "ok")]
    assert there.rows()[0].keys() == here.rows()[0].keys()
    assert (there.document.study, there.document.machine) == (here.document.study, None)


def test_the_example_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, text = PAGE.read_text().partition("## On other machines")
    code = text.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {"polybench": polybench}
    for written, tiny in (
        ('["torch", "tf"]', '["fake", "fake+slow"], **tiny'),
        ('data="cifar10", ', ""),
        ('"ray://127.0.0.1:10001"', '"local"'),
    ):
        assert written in code
        code = code.replace(written, tiny)
    names["tiny"] = {name: value for name, value in options(tmp_path).items() if name != "engines"}
    exec(code, names)
    result = names["result"]
    assert isinstance(result, MachinesResult)
    rows = [(row["machine"], row["cell"], row["status"]) for row in result.rows()]
    assert rows == [
        (name, cell, "ok") for name in ("small", "large") for cell in ("fake/cpu", "fake+slow/cpu")
    ]
    assert [one.prices for one in result.document.machines] == [{"cpu": 0.17}, {"cpu": 0.68}]
    assert [row["cell"] for row in result.studies["small"].rows()] == ["fake/cpu", "fake+slow/cpu"]
    saved = [Store(tmp_path / "r").load(path.stem) for path in result.save(tmp_path / "r")]
    assert [one.machine for one in saved] == ["small", "large"]


def test_a_machine_that_is_alone_has_its_name(tmp_path: Path) -> None:
    result = polybench.compare(on="local", machines=[{"label": "small"}], **options(tmp_path))
    assert [row["machine"] for row in result.rows()] == ["small"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"machines": [{"label": "a"}]}, r'say where the machines are, for example on="ray://HOST:PORT"'),
        ({"on": "local", "machines": []}, "machines: there is none"),
        ({"on": "local", "machines": [{"label": "a", "cpus": 3}]}, r"machines\[0\]: .*unknown field `cpus`"),
        ({"on": "local", "machines": [{"label": "a"}, {"label": "a"}]}, "two .* are called 'a'"),
        ({"on": "moon"}, "does not know such machines"),
        ({"on": "local", "engines": ["fake@e"], "env": {"e": "/"}}, "env e: environments are this machine's"),
    ],
)
def test_what_is_refused(wrong: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=says):
        polybench.compare(**options(tmp_path, **wrong))


def test_the_typed_keys_are_those_of_machines() -> None:
    keys = get_type_hints(MachineKeys, include_extras=True)
    assert keys.pop("label") == Required[str]
    fields = get_type_hints(MachineGroup)
    del fields["label"]
    assert keys == fields | {"devices": Sequence[str] | None}


def test_print_prints_though_rays_own_words_are_kept_silent(capsys: pytest.CaptureFixture[str]) -> None:
    progress = told(print)
    with contextlib.redirect_stdout(io.StringIO()):
        progress.warn("said")
    assert "said" in capsys.readouterr().out
