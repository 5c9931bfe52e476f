"""polybench from Python."""

from __future__ import annotations

import csv
import functools
import io
import json
import operator
import sys
from collections.abc import Sequence
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

import polybench
from polybench.api import Options, StudyResult
from polybench.data import synthetic
from polybench.errors import BadInput
from polybench.machine import host
from polybench.schema.options import Study
from polybench.schema.study import from_json
from polybench.storage.store import Store, results_folder
from tests.factories import layers, measured, points_over_threads, study, typical_study
from tests.figures.documents import full_study
from tests.log_of import log_of, save_document, sweep_log_of

SHORT: dict[str, Any] = {"data": "synthetic", "processes": 2, "rounds_per_process": 2, "steps_per_round": 5}
FAST = SHORT | {"batch_size": 16}


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 500)
    pytest.importorskip("plotly", reason="plotly is not installed")
    pytest.importorskip("pandas", reason="pandas is not installed")


def test_compare_returns_rows_documents_and_a_display(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    result = polybench.compare(engines=["fake", "fake+slow"], devices=["cpu"], **FAST)
    assert capfd.readouterr() == ("", "")  # nothing is printed
    fast, slow = result.rows()
    assert (fast["configuration"], slow["engine"], slow["variant"], slow["device"]) == (
        "fake/cpu", "fake", "slow", "cpu",
    )  # fmt: skip
    for name in ("step_time", "speedup"):
        assert slow[f"{name}_low"] <= slow[name] <= slow[f"{name}_high"]
    assert list(csv.DictReader(io.StringIO(result.to_csv())))[1]["study"] == result.document.id
    assert slow["step_time"] == pytest.approx(0.02, rel=0.2)
    assert from_json(result.to_json().encode()) == result.document
    assert "| fake+slow/cpu" in result.to_markdown()
    assert result.to_markdown() == result._repr_markdown_()
    assert "fake/cpu" in str(result)
    assert "fake/cpu" in repr(result)
    path = result.save(tmp_path)
    assert polybench.load(str(path)).document == result.document
    assert result.save(tmp_path) == path  # nothing is written again
    frame = result.to_pandas()
    assert list(frame.index) == ["fake/cpu", "fake+slow/cpu"]
    assert frame.loc["fake/cpu", "step_time"] == pytest.approx(0.01, rel=0.2)


def test_a_sweep_has_a_row_for_each_configuration_at_each_point() -> None:
    result = polybench.sweep(axes={"batch_size": [8, 16]}, engines="fake,fake+slow", **SHORT)
    rows = result.rows()
    assert [(row["batch_size"], row["configuration"]) for row in rows][2:] == [(16, "fake/cpu"), (16, "fake+slow/cpu")]
    assert rows[2]["speedup"] == pytest.approx(2, rel=0.2)
    assert "Fastest: fake/cpu with batch size 16, " in str(result)
    assert "| images/s by batch size " in result._repr_markdown_()
    assert len(result.to_pandas()) == 4
    path = result.save()
    assert path.stem == result.document.id
    assert polybench.load_sweep().to_json() == result.to_json()
    assert [trace.name for trace in result.plot().data] == ["fake/cpu", "fake+slow/cpu"]


def test_overhead_has_a_row_per_configuration() -> None:
    result = polybench.overhead(batch_sizes=[1, 128], engines="faulty+linear_cost", **SHORT)
    (row,) = result.rows()
    assert row["overhead_seconds"] == pytest.approx(2e-3, rel=0.1)
    assert "faulty+linear_cost/cpu" in str(result)
    assert "faulty+linear_cost/cpu" in result._repr_markdown_()
    assert len(result.to_pandas()) == 1
    result.save()
    assert polybench.load_overhead().to_json() == result.to_json()
    with pytest.raises(BadInput, match="two or more batch sizes"):
        polybench.overhead(batch_sizes=[8], engines="faulty+linear_cost")
    assert result.plot().data[0].x == (1, 128)


def test_layers_return_rows_documents_and_a_display(capfd: pytest.CaptureFixture[str]) -> None:
    result = polybench.layers(engines="fake", devices=["cpu"], **FAST)
    assert capfd.readouterr() == ("", "")
    row = result.rows()[0]
    assert (row["configuration"], row["layer"], row["operation"]) == ("fake/cpu", "conv1 + relu", "forward")
    assert json.loads(result.to_json())["configurations"][0]["configuration"] == "fake/cpu"
    assert result.to_markdown() == result._repr_markdown_()
    assert "| conv1 + relu" in result.to_markdown()
    assert "between the layers" in str(result)
    assert result.to_pandas().loc[("fake/cpu", "dense3", "forward"), "seconds_per_step"] > 0
    assert result.plot().data[0].name == "forward"


def test_parity_has_a_row_for_each_comparison() -> None:
    result = polybench.parity(engines="reference,fake", devices="cpu", data="synthetic", batch_size=4)
    rows = result.rows()
    assert {row["configuration"] for row in rows} == {"reference/cpu"}  # the other engine is simulated
    assert all(row["relative_error"] <= row["tolerance"] for row in rows)
    assert {row["kind"] for row in rows} == {"loss", "gradient", "size", "weight", "correct"}
    assert "reference/cpu: same" in str(result)
    assert result._repr_markdown_() == f"```\n{result}```"
    assert json.loads(result.to_json())["results"][0]["parity"]["status"] == "pass"
    assert len(result.to_pandas()) == len(rows)


def test_progress_is_reported_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "usable_threads", lambda: 1)
    lines: list[str] = []
    polybench.compare(engines="fake", progress=lines.append, **FAST, threads=2)
    assert lines[0] == "preparing data"
    assert any("round 2 of 2" in line for line in lines)
    assert any(line.startswith("warning: 2 threads on 1 usable cores") for line in lines)


def test_dir_lists_all_public_names() -> None:
    assert set(polybench.__all__) <= set(dir(polybench))
    assert {"compare", "StudyResult", "BadInput"} <= set(dir(polybench))


def test_quick_is_one_process_and_lists_may_be_text() -> None:
    options = {name: value for name, value in FAST.items() if name != "processes"}
    result = polybench.compare(engines="fake, fake+slow", devices="cpu", precision="fp32,bf16", quick=True, **options)
    assert result.document.settings.processes == 1
    names = " ".join(row["configuration"] for row in result.rows())
    assert names == "fake/cpu fake/cpu/bf16 fake+slow/cpu fake+slow/cpu/bf16"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size: Expected `int` >= 1"),
        ({"engines": 3}, "engines: Expected `array`, got `int`"),
        ({"lr_schedule": [(1, "x")]}, "schedule[0][1]: Expected `float`, got `str`"),
        ({"epocs": 3}, "unknown option 'epocs'; did you mean 'epochs'"),
    ],
)
def test_bad_options_are_errors_with_their_location(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput) as error:
        polybench.compare(**({"engines": ["fake"]} | options))
    assert message in str(error.value)
    assert "$" not in str(error.value)
    assert "injected_delays" not in str(error.value)  # for tests only


def test_unknown_columns_are_bad_input() -> None:
    with pytest.raises(BadInput, match="unknown column"):
        StudyResult(typical_study(), b"").rows(["speeed"])


def test_typed_options_are_the_fields_of_a_study() -> None:
    expected = {field: _argument_type(hint) for field, hint in get_type_hints(Study).items()}
    expected["model"] |= Any  # a model of any framework
    assert get_type_hints(Options) == expected


def _argument_type(hint: Any) -> Any:
    """Return the type of an argument for a field: a sequence instead of a tuple, text instead of a
    Literal."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return str
    if origin is UnionType:
        return functools.reduce(operator.or_, map(_argument_type, arguments))
    if origin is tuple and arguments[-1] is ...:
        return Sequence[_argument_type(arguments[0])]  # type: ignore[misc]
    return origin[tuple(map(_argument_type, arguments))] if origin else hint


def test_a_study_has_figures() -> None:
    result = StudyResult(full_study(), b"")
    assert result.plot().layout.title.text == "<b>Speed relative to the baseline</b>"
    assert len(result.plot("accuracy").data) == 9
    with pytest.raises(BadInput, match="unknown figure 'scaling'"):
        result.plot("scaling")


def test_saved_studies_have_histories_merges_and_reports(own_folders: Path) -> None:
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    for day, name in ((1, "here"), (2, "here"), (3, "there")):
        one = full_study()
        one.id, one.created = f"2025010{day}-000000-abcd", f"2025-01-0{day}T00:00:00Z"
        one.host.hostname = name
        StudyResult(one, log_of(one)).save()

    history = polybench.history(engine="torch", host="here", versions={"torch": "2.13"}, since="2025-01-01")
    assert [(row["configuration"], row["study"][:8]) for row in history.rows()] == [
        ("torch/cpu", "20250101"), ("torch/cpu", "20250102"),
    ]  # fmt: skip
    assert history.change_points() == []
    assert "no change point" in str(history) in history._repr_markdown_()
    assert json.loads(history.to_json())["schema"] == "polybench.history/2"
    assert len(history.plot().data) == 2
    with pytest.raises(BadInput, match="'yesterday': invalid date"):
        polybench.history(since="yesterday")
    with pytest.raises(BadInput, match="did you mean 'engine'"):
        polybench.history(engin="torch")  # type: ignore[call-arg]

    merged = polybench.merge("20250102", polybench.load("20250103"), prices={"there:cpu": 1.0})
    rows = {(row["machine"], row["configuration"]): row for row in merged.rows()}
    assert rows["there", "tf/cpu"]["dollars_per_epoch"] > 0
    assert rows["here", "tf/cpu"]["dollars_per_epoch"] is None
    assert "there" in str(merged)
    assert json.loads(merged.to_json())["schema"] == "polybench.merge/2"

    log = sweep_log_of("sweep-20250101-000000-abcd", points_over_threads())
    path = Store(results_folder()).save_log("sweep-20250101-000000-abcd", log)
    sweep = polybench.load_sweep()
    assert sweep.log == log
    assert sweep.save() == path  # nothing is written again
    assert polybench.load_sweep(str(path)).rows() == sweep.rows()
    assert polybench.load("sweep-20250101.1").document.settings.threads == 2
    page = polybench.report("20250101", polybench.load("last"), "sweep-last", str(path))
    assert "4 reports" in page
    assert "highest throughput" in sweep.to_html()
    assert "tf is 1.25" in polybench.load("last").to_html()
    with pytest.raises(BadInput, match="at least one study"):
        polybench.report()


def test_a_page_has_what_is_saved_in_its_results_folder(tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="jinja2 is not installed")
    document = study(measured("torch/cpu", 0.02), measured("tf/cpu", 0.01))
    timed = layers(document, {"torch/cpu": 0.02}, {"torch/cpu": {("conv2 + relu", "forward"): 0.01}})
    save_document(Store(tmp_path), timed)
    result = StudyResult(document, b"")
    assert ["conv2 + relu" in page for page in (result.to_html(tmp_path), result.to_html())] == [True, False]


def test_a_missing_pandas_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(BadInput, match=r"pandas is not installed; pip install 'polybench-dl\[pandas\]'"):
        StudyResult(full_study(), b"").to_pandas()
