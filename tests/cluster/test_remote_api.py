"""Remote runs with the Python API, on this machine."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Required, get_type_hints

import pytest

import polybench
from polybench.api import MachineKeys, MachinesResult, StudyResult
from polybench.api.options import make_progress
from polybench.errors import BadInput
from polybench.schema.options import MachineGroup
from polybench.storage.store import Store
from tests.cluster.cluster_runs import FIELDS, study

PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def options(folder: Path, **more: Any) -> dict[str, Any]:
    return FIELDS | {"data": study(folder).data, "processes": 1} | more


def test_single_machine_yields_the_result_of_a_local_study(tmp_path: Path) -> None:
    lines: list[str] = []
    remote = polybench.compare(on="local", progress=lines.append, **options(tmp_path))
    assert lines[0] == "checking the machines of local"
    assert isinstance(remote, StudyResult)
    local = polybench.compare(**options(tmp_path))
    assert [(row["configuration"], row["status"]) for row in remote.rows()] == [("fake/cpu", "ok")]
    assert remote.rows()[0].keys() == local.rows()[0].keys()
    assert (remote.document.study, remote.document.machine_label) == (local.document.study, None)


def test_example_of_the_docs_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, text = PAGE.read_text().partition("## Remote runs")
    code = text.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {"polybench": polybench}
    for original, replacement in (
        ('["torch", "tf"]', '["fake", "fake+slow"], **tiny'),
        ('data="cifar10", ', ""),
        ('"ray://127.0.0.1:10001"', '"local"'),
    ):
        assert original in code
        code = code.replace(original, replacement)
    names["tiny"] = {name: value for name, value in options(tmp_path).items() if name != "engines"}
    exec(code, names)
    result = names["result"]
    assert isinstance(result, MachinesResult)
    rows = [(row["machine"], row["configuration"], row["status"]) for row in result.rows()]
    assert rows == [
        (name, configuration, "ok") for name in ("small", "large") for configuration in ("fake/cpu", "fake+slow/cpu")
    ]
    assert [one.prices for one in result.document.machines] == [{"cpu": 0.17}, {"cpu": 0.68}]
    assert [row["configuration"] for row in result.studies["small"].rows()] == ["fake/cpu", "fake+slow/cpu"]
    saved = [Store(tmp_path / "r").load(path.stem) for path in result.save(tmp_path / "r")]
    assert [one.machine_label for one in saved] == ["small", "large"]


def test_saved_studies_show_the_spread_between_studies_of_each_machine(tmp_path: Path) -> None:
    machines: list[MachineKeys] = [{"label": "small"}, {"label": "large"}]
    repetitions = []
    for _ in range(2):
        result = polybench.compare(on="local", machines=machines, **options(tmp_path, processes=2))
        assert isinstance(result, MachinesResult)
        repetitions += [machine.spreads["cpu"].repetitions for machine in result.document.machines]
        result.save()
    assert repetitions[2:] == [2 + found for found in repetitions[:2]]  # those of the first table


def test_single_labelled_machine_has_its_label(tmp_path: Path) -> None:
    result = polybench.compare(on="local", machines=[{"label": "small"}], **options(tmp_path))
    assert [row["machine"] for row in result.rows()] == ["small"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"machines": [{"label": "a"}]}, r'machines and upload require `on`, for example on="ray://HOST:PORT"'),
        ({"on": "local", "machines": []}, "machines is empty"),
        ({"on": "local", "machines": [{"label": "a", "cpus": 3}]}, r"machines\[0\]: .*unknown field `cpus`"),
        ({"on": "local", "machines": [{"label": "a"}, {"label": "a"}]}, "duplicate label 'a'"),
        ({"on": "moon"}, "unknown kind of machines"),
        ({"on": "local", "engines": ["fake@e"], "env": {"e": "/"}}, "env e: environments exist on this machine only"),
    ],
)
def test_invalid_machines_are_rejected(fields: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=message):
        polybench.compare(**options(tmp_path, **fields))


def test_typed_keys_match_the_fields_of_machine_groups() -> None:
    keys = get_type_hints(MachineKeys, include_extras=True)
    assert keys.pop("label") == Required[str]
    fields = get_type_hints(MachineGroup)
    del fields["label"]
    assert keys == fields | {"devices": Sequence[str] | None}


def test_progress_is_printed_while_rays_output_is_suppressed(capsys: pytest.CaptureFixture[str]) -> None:
    progress = make_progress(print)
    with contextlib.redirect_stdout(io.StringIO()):
        progress.on_warning("printed")
    assert "printed" in capsys.readouterr().out
