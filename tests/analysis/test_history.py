"""Change points and notes of series of constructed studies, whose processes do not differ."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import pytest

from polybench.analysis.history import build_history
from polybench.render.history import series_table
from polybench.schema.analyses import Series
from polybench.schema.result import StepTimes
from polybench.stats.between_studies import ASSUMED_STD
from polybench.stats.statistics import student_quantile, summarize_step_times
from tests.factories import measured, study


def series(seconds: Sequence[float]) -> Series:
    """Return the series of studies of torch alone with these step times, in order of time."""
    studies = []
    for day, step in enumerate(seconds, start=1):
        times = [[[step]]] * 3
        result = measured(
            "torch/cpu", step, step_times=StepTimes("step", 1, times), step_time=summarize_step_times(times, "step")
        )
        created = f"2026-01-{day:02d}T10:00:00+00:00"
        studies.append(msgspec.structs.replace(study(result), id=f"202601{day:02d}", created=created))
    (found,) = build_history(studies[::-1]).series
    return found


def test_a_change_point_has_the_interval_of_the_shifts_of_both_parts() -> None:
    found = series([0.04, 0.04, 0.04, 0.02, 0.02])
    (change,) = found.change_points
    assert (change.previous_study, change.study, change.created) == (
        "20260103",
        "20260104",
        "2026-01-04T10:00:00+00:00",
    )
    assert (found.spread.std, found.spread.degrees_of_freedom) == (ASSUMED_STD, None)
    half = student_quantile(math.inf) * ASSUMED_STD * math.sqrt(1 / 3 + 1 / 2)
    assert change.ratio == pytest.approx(2)
    assert change.ci95 == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)))


def test_a_step_within_the_intervals_of_the_studies_is_no_change_point() -> None:
    for log_ratio, changes in ((0.2, 0), (0.4, 1)):
        found = series([0.04, 0.04, 0.04, *[0.04 * math.exp(-log_ratio)] * 2])
        assert len(found.change_points) == changes, log_ratio
        assert len({point.segment_level for point in found.points}) == 1 + changes


def test_only_a_change_point_without_another_engine_may_be_one_of_the_machine() -> None:
    for seconds, is_ambiguous in (([0.04] * 5, False), ([0.04, 0.04, 0.04, 0.02, 0.02], True)):
        notes = series_table(series(seconds), 0.01).notes
        assert any(note.startswith("no other engine on cpu is in these studies") for note in notes) == is_ambiguous
