from __future__ import annotations

import csv
import io

import pytest

from polybench.export import render
from polybench.metrics.base import Metric
from tests.factories import absent, measured, study, typical_study


@pytest.fixture
def rows(columns: list[Metric]) -> dict[str, dict[str, str]]:
    text = render("csv", typical_study(), columns)
    return {row["cell"]: row for row in csv.DictReader(io.StringIO(text))}


def test_one_row_for_every_cell(rows: dict[str, dict[str, str]]) -> None:
    assert list(rows) == [result.cell for result in typical_study().results]
    assert None not in rows["torch/cpu"]


def test_plain_si_values(rows: dict[str, dict[str, str]]) -> None:
    step_seconds = typical_study().result("tf/cpu").step_seconds
    assert step_seconds is not None
    assert step_seconds.interval95 is not None
    assert float(rows["tf/cpu"]["step_time [s]"]) == step_seconds.median
    assert float(rows["tf/cpu"]["step_time_low [s]"]) == step_seconds.interval95[0]
    assert float(rows["tf/cpu"]["peak_memory [B]"]) == 412 * 2**20
    assert float(rows["tf/cpu"]["speedup"]) == pytest.approx(1.9298, rel=1e-4)


def test_status_of_cells_without_times(rows: dict[str, dict[str, str]]) -> None:
    assert rows["torch/cuda"]["status"] == "unavailable"
    assert rows["torch/cuda"]["step_time [s]"] == ""
    assert rows["torch/cuda"]["remedy"] == "install an NVIDIA driver, then run polybench doctor"
    assert rows["tf/cuda"]["reason"] == "killed by signal 9 (SIGKILL) out of memory?"


def test_ranked(rows: dict[str, dict[str, str]]) -> None:
    assert rows["tf/cpu"]["ranked"] == "true"
    assert rows["tf+keras_fit/cpu"]["ranked"] == "false"
    assert rows["tf+keras_fit/cpu"]["variant"] == "keras_fit"


def test_an_environment_is_a_column(columns: list[Metric]) -> None:
    text = render("csv", study(measured("torch/cpu", 0.01), measured("torch@old/cpu", 0.01)), columns)
    assert [row["environment"] for row in csv.DictReader(io.StringIO(text))] == ["", "old"]


def test_every_row_says_what_was_measured_and_where(rows: dict[str, dict[str, str]]) -> None:
    document = typical_study()
    settings = document.settings
    for row in rows.values():
        assert (row["study"], row["created"], row["host"]) == (
            document.id, document.created, document.host.hostname,
        )  # fmt: skip
        assert (row["model"], row["data"], row["precision"]) == ("lenet", settings.dataset, "fp32")
        assert (row["batch_size"], row["threads"]) == (str(settings.batch_size), str(settings.threads))


def test_the_header_is_the_same_whatever_was_measured(columns: list[Metric]) -> None:
    headers = {
        render("csv", one, columns).splitlines()[0]
        for one in (typical_study(), study(), study(absent("tf/cpu", "failed", "crashed")))
    }
    (header,) = headers
    for name in ("step_time_low [s]", "step_time_high [s]", "speedup_low", "speedup_high"):
        assert name in header.split(",")
    assert "peak_memory_low" not in header
