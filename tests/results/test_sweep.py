"""Points of a sweep that differ from the best one."""

from __future__ import annotations

import numpy as np
import pytest

from polybench.results.sweep import build_sweep_document
from polybench.schema.measurements import SweepDocument
from polybench.schema.result import StepTimes
from polybench.stats.statistics import summarize_step_times
from tests.factories import measured, study


def sweep(levels: np.ndarray) -> SweepDocument:
    """Return a sweep over threads whose processes have these step times in seconds, as [point][process]."""
    points = []
    for number, processes in enumerate(levels, 1):
        times = [[[seconds]] for seconds in processes.tolist()]
        row = {"step_times": StepTimes("step", 1, times), "step_time": summarize_step_times(times, "step")}
        step = row["step_time"]
        points.append(
            ({"threads": number}, study(measured("torch/cpu", 0.02, items_per_second=128 / step.mean, **row)))
        )
    return build_sweep_document({"threads": [*range(1, len(levels) + 1)]}, points, [], usable_threads=8)


def left_out(levels: np.ndarray) -> int:
    (curve,) = sweep(levels).curves
    assert curve.as_good is not None
    return len(levels) - 1 - len(curve.as_good)


@pytest.mark.parametrize("points", [2, 4, 8])
def test_of_equal_points_one_is_seldom_told_from_the_best(points: int) -> None:
    random, sweeps = np.random.default_rng(points), 200
    false = sum(left_out(0.02 * (1 + 0.03 * random.standard_normal((points, 5)))) > 0 for _ in range(sweeps))
    assert false / sweeps <= 0.05 + 2 * (0.05 * 0.95 / sweeps) ** 0.5


def test_slower_points_are_told_from_the_best() -> None:
    equal = 0.02 * (1 + 0.005 * np.random.default_rng(0).standard_normal((4, 5)))
    assert left_out(equal * np.array([1.0, 1.0, 1.3, 1.5])[:, None]) == 2


def test_points_of_one_process_are_not_compared() -> None:
    (curve,) = sweep(np.array([[0.02], [0.03]])).curves
    assert curve.as_good is None
