from __future__ import annotations

from typing import Any

import pytest

from polybench.render import WIDTH, render_study
from polybench.render.auto_columns import fit_columns
from polybench.render.terminal import table_width
from polybench.schema.metrics import DEFAULT_COLUMNS, select_metrics
from polybench.schema.resources import Allocation, Allocations, Cost
from polybench.schema.result import Comparison, Result
from tests.factories import measured, study, unmeasured

FULL: dict[str, Any] = {
    "allocations": Allocations(Allocation(73, 54_840_000, "source", "coverage")),
    "cost": Cost(0.0034, 2.5),
    "gpu_speedup": Comparison("torch/cpu", 97.8, None),
}


def names(*results: Result, width: int | None = WIDTH) -> list[str]:
    return [column.name for column in fit_columns(study(*results), select_metrics(DEFAULT_COLUMNS), width)]


def test_columns_without_values_are_omitted() -> None:
    selected = names(measured("torch/cpu", 0.0165), unmeasured("tf/cuda", "unavailable", "no NVIDIA driver"))
    assert "alloc_bytes_per_step" not in selected
    assert "cost_per_epoch" not in selected
    assert {"step_time", "speedup", "throughput", "parity", "peak_memory", "cold_start"} == set(selected)


def test_least_important_columns_are_omitted_first() -> None:
    wide = [measured("torch+channels_last+compile/cuda", 0.0165, **FULL), measured("tf/cpu", 0.009, **FULL)]
    selected = names(*wide)
    assert selected[:4] == ["step_time", "speedup", "parity", "alloc_bytes_per_step"]
    assert "throughput" not in selected
    assert table_width(study(*wide), select_metrics(selected)) <= WIDTH


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_table_uses_the_width_of_the_terminal(width: int) -> None:
    wide = study(*(measured(f"{name}/cpu", 0.0165, **FULL) for name in ("flux", "torch", "tf")))
    lines = render_study(wide, "table", width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(names(*wide.results, width=width)) > len(names(*wide.results, width=width - 20))


def test_document_formats_have_no_width() -> None:
    wide = measured("torch+channels_last+compile/cuda", 0.0165, **FULL)
    all_names = names(wide, width=None)
    assert len(all_names) > len(names(wide))
    for name in ("markdown", "latex"):
        text = render_study(study(wide), name, width=40).replace("\\", "")
        assert all(column.title in text for column in select_metrics(all_names))


def test_typical_table_contains_all_typical_columns() -> None:
    typical = {"allocations": FULL["allocations"]}
    selected = names(*(measured(f"{name}/cpu", 0.0165, **typical) for name in ("flux", "torch", "tf")))
    assert {"alloc_bytes_per_step", "throughput", "cold_start", "peak_memory", "speedup", "parity"} <= set(selected)


def test_study_without_measurements_has_no_columns() -> None:
    assert names(unmeasured("tf/cpu", "failed", "crashed")) == []
