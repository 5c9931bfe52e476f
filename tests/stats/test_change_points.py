"""The Potts fit finds planted change points at the right place, and none in noise or single outliers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from polybench.stats.change_points import Segment, _segment_costs, segment

ERROR = 0.02


def bounds(values: list[float], errors: list[float] | None = None) -> list[int]:
    found = segment(values, errors or [ERROR] * len(values))
    assert [one.start for one in found[1:]] == [one.stop for one in found[:-1]]
    assert (found[0].start, found[-1].stop) == (0, len(values))
    return [one.start for one in found[1:]]


def noisy(levels: list[float], noise: float, seed: int) -> list[float]:
    return [
        level + noise * x for level, x in zip(levels, np.random.default_rng(seed).normal(size=len(levels)), strict=True)
    ]


def test_no_points_give_no_segment_and_few_points_give_one() -> None:
    assert segment([], []) == []
    assert segment([1.0], [ERROR]) == [Segment(0, 1, 1.0)]
    assert segment([1.0, 2.0], [ERROR] * 2) == [Segment(0, 2, 1.0)]  # the lower of two medians
    assert bounds([1.0, 1.0, 2.0]) == []


def test_a_change_point_is_found_at_its_place() -> None:
    for seed in range(20):
        assert bounds(noisy([0.0] * 5 + [0.1] * 6, 0.01, seed)) == [5]


def test_two_studies_after_a_clear_change_are_enough() -> None:
    assert bounds([0.0, 0.01, -0.01, 0.0, 0.2, 0.21]) == [4]
    assert bounds([0.0, 0.0, 0.2, 0.2]) == [2]


def test_several_changes_up_and_down_are_found() -> None:
    levels = [0.0] * 8 + [0.3] * 6 + [0.1] * 9 + [0.25] * 4
    assert bounds(noisy(levels, 0.01, 3)) == [8, 14, 23]


def test_noise_gives_no_change_points() -> None:
    found = [bounds(noisy([0.0] * n, 0.02, seed)) for n in (6, 12, 40) for seed in range(20)]
    assert sum(map(bool, found)) <= 3


def test_one_outlier_gives_no_change_point() -> None:
    values = noisy([0.0] * 15, 0.01, 1)
    values[7] = 0.5
    assert bounds(values) == []


def test_changes_within_the_intervals_are_not_change_points() -> None:
    values = [0.0, 0.001, 0.0, 0.03, 0.031, 0.03]
    assert bounds(values, [0.002] * 6) == [3]
    assert bounds(values, [0.1] * 6) == []


def test_the_smallest_change_point_follows_from_the_penalty() -> None:
    """Two segments win if 6 log(change / 2 / (0.3 error)) > 4 log 6, so from a change of 1.98 errors."""
    for change, found in ((1.95, []), (2.01, [3])):
        assert bounds([0.0] * 3 + [change * ERROR] * 3) == found


def test_a_segment_has_the_median_of_its_points() -> None:
    (_, last) = segment([0.0] * 4 + [1.0, 1.1, 1.2], [ERROR] * 7)
    assert last == Segment(4, 7, 1.1)


def test_there_are_at_most_20_segments() -> None:
    def changes(levels: int) -> int:
        return len(bounds([float(number // 2 % 2) for number in range(2 * levels)], [1e-9] * 2 * levels))

    assert changes(20) == 19
    assert changes(21) <= 19


def test_studies_with_wide_intervals_have_less_weight() -> None:
    precise, imprecise = [0.0, 0.0, 0.0, 0.1, 0.1, 0.1], [0.1, 0.1, 0.1]
    (found,) = segment([*precise[:3], *imprecise], [0.005] * 3 + [0.5] * 3)
    assert found.level == 0.0


@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(0.1, 10)), min_size=2, max_size=12))
@settings(max_examples=50)
def test_costs_are_distances_from_the_weighted_median(points: list[tuple[float, float]]) -> None:
    values, weights = map(list, zip(*points, strict=True))
    costs, levels = _segment_costs(values, weights)
    for start, stop in itertools.combinations(range(len(points)), 2):
        segment_points = points[start : stop + 1]
        best = min(sum(w * abs(y - level) for y, w in segment_points) for level, _ in segment_points)
        assert costs[start, stop] == pytest.approx(best, abs=1e-9)
        assert sum(w * abs(y - levels[start][stop]) for y, w in segment_points) == pytest.approx(best, abs=1e-9)


def test_an_exact_line_has_exactly_its_change_points() -> None:
    assert bounds([0.0] * 10) == []
    assert bounds([0.0] * 10 + [math.log(2)] * 10) == [10]
