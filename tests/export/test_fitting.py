from __future__ import annotations

from typing import Any

import pytest

from polybench.core.document.resources import Allocation, Allocations, Cost
from polybench.core.document.result import Result
from polybench.core.document.times import DeviceSpeedup
from polybench.export import WIDTH
from polybench.export.fitting import fitting
from polybench.export.rendering import rendered
from polybench.export.terminal import table_width
from polybench.metrics import DEFAULT_COLUMNS, metrics_of
from tests.factories import absent, measured, study

FULL: dict[str, Any] = {
    "allocations": Allocations(Allocation(73, 54_840_000, "source", "covers")),
    "cost": Cost(0.0034, 2.5),
    "device_speedup": DeviceSpeedup("torch/cpu", 97.8, None),
}


def names(*results: Result, width: int | None = WIDTH) -> list[str]:
    return [column.name for column in fitting(study(*results), metrics_of(DEFAULT_COLUMNS), width)]


def test_columns_without_a_value_are_left_out() -> None:
    found = names(measured("torch/cpu", 0.0165), absent("tf/cuda", "unavailable", "no NVIDIA driver"))
    assert "allocated" not in found
    assert "cost" not in found
    assert {"step_time", "speedup", "throughput", "parity", "peak_memory", "cold_start"} == set(found)


def test_what_does_not_fit_is_the_least_important() -> None:
    wide = [measured("torch+channels_last+compile/cuda", 0.0165, **FULL), measured("tf/cpu", 0.009, **FULL)]
    found = names(*wide)
    assert found[:4] == ["step_time", "speedup", "parity", "allocated"]
    assert "throughput" not in found
    assert table_width(study(*wide), metrics_of(found)) <= WIDTH


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_table_is_as_wide_as_the_terminal(width: int) -> None:
    wide = study(*(measured(f"{name}/cpu", 0.0165, **FULL) for name in ("flux", "torch", "tf")))
    lines = rendered(wide, "table", width=width).splitlines()
    assert max(map(len, lines)) <= width
    assert len(names(*wide.results, width=width)) > len(names(*wide.results, width=width - 20))


def test_a_document_has_no_width() -> None:
    wide = measured("torch+channels_last+compile/cuda", 0.0165, **FULL)
    everything = names(wide, width=None)
    assert len(everything) > len(names(wide))
    for name in ("markdown", "latex"):
        text = rendered(study(wide), name, width=40).replace("\\", "")
        assert all(column.title in text for column in metrics_of(everything))


def test_the_usual_table_has_all_that_is_usual() -> None:
    usual = {"allocations": FULL["allocations"]}
    found = names(*(measured(f"{name}/cpu", 0.0165, **usual) for name in ("flux", "torch", "tf")))
    assert {"allocated", "throughput", "cold_start", "peak_memory", "speedup", "parity"} <= set(found)


def test_nothing_measured() -> None:
    assert names(absent("tf/cpu", "failed", "crashed")) == []
