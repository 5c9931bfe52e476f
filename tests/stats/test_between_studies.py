"""Changes between studies, and the spread between them, on levels with a known truth."""

from __future__ import annotations

import itertools
import math
from statistics import fmean, variance

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import ttest_ind

from polybench.schema.analyses import ENOUGH_REPETITIONS
from polybench.stats.between_studies import (
    ASSUMED_STD,
    LogRatioChange,
    Repetition,
    combine,
    common_shifts,
    compare_studies,
    difference_of_shifts,
    estimate_spread,
    estimate_spread_of_series,
    log_ratio_change,
)
from polybench.stats.statistics import mean_step

NO_SHIFTS = LogRatioChange(0.0, 0.0, 1.0)

ONE = [[[x]] for x in (1.35, 1.38, 1.34, 1.42)]
TWO = [[[x]] for x in (1.22, 1.27, 1.16)]


def test_the_change_has_welchs_interval() -> None:
    found = log_ratio_change(ONE, TWO)
    assert found is not None
    # Welch's test of the deviations relative to each mean, around the ratio.
    logs = [[math.log(mean_step(both)[0]) + steps[0][0] / mean_step(both)[0] for steps in both] for both in (ONE, TWO)]
    expected = ttest_ind(*logs, equal_var=False)
    low, high = expected.confidence_interval()
    assert found.ratio == pytest.approx(mean_step(ONE)[0] / mean_step(TWO)[0])
    assert found.ci95 == pytest.approx((math.exp(low), math.exp(high)))
    assert found.p_value == pytest.approx(expected.pvalue)
    ratio = compare_studies(ONE, TWO, NO_SHIFTS)
    assert (ratio.speedup, ratio.ci95) == (found.ratio, found.ci95)
    assert compare_studies(ONE[:1], TWO, NO_SHIFTS).ci95 is None


@given(st.floats(-0.5, 0.5), st.floats(1e-6, 0.1), st.floats(1.5, 40))
def test_the_p_value_is_small_if_the_interval_excludes_1(
    log: float, variance: float, degrees_of_freedom: float
) -> None:
    one = LogRatioChange(log, variance, degrees_of_freedom)
    low, high = map(math.log, one.ci95)
    if abs(max(low, -high)) > 1e-6:
        assert (one.p_value < 0.05) == (max(low, -high) > 0)


def test_identical_studies_have_no_change_and_a_single_process_has_no_p_value() -> None:
    same = [[[1.0]], [[1.0]]]
    found = log_ratio_change(same, same)
    assert found == LogRatioChange(0.0, 0.0, 2)
    assert found.p_value == 1.0
    other = log_ratio_change(same, [[[2.0]], [[2.0]]])
    assert other is not None
    assert other.p_value == 0.0
    assert log_ratio_change(ONE[:1], TWO) is None


def test_the_difference_of_shifts_widens_the_interval() -> None:
    shifts = LogRatioChange(0.0, 2 * 0.05**2, 5)
    found, without = (compare_studies(ONE, TWO, one) for one in (shifts, NO_SHIFTS))
    change = log_ratio_change(ONE, TWO)
    assert change is not None
    assert found.speedup == without.speedup == pytest.approx(change.ratio)
    assert found.ci95 == pytest.approx(combine((1, change), (1, shifts)).ci95)
    assert found.p_value is not None
    assert without.p_value is not None
    assert found.p_value > without.p_value


def test_the_speedup_of_a_single_process_is_without_the_difference_of_shifts() -> None:
    shifts = LogRatioChange(0.3, 0.01, 5)
    found = compare_studies([[[1.5]]], [[[0.5]]], shifts)
    assert found.speedup == pytest.approx(3 * math.exp(-0.3))
    assert compare_studies([[[1.5]]] * 2, [[[0.5]]] * 2, shifts).speedup == pytest.approx(found.speedup)


def repetitions(levels: dict[str, list[float]], error: float = 0.0) -> list[Repetition]:
    """Return repetitions of each group in the studies 0, 1 ..."""
    return [
        Repetition(str(study), group, log, error**2) for group, logs in levels.items() for study, log in enumerate(logs)
    ]


SIX = [0.00, 0.03, -0.02, 0.05, 0.01, -0.04]


def test_the_spread_is_the_variance_of_the_levels_without_their_errors() -> None:
    found = estimate_spread(repetitions({"torch": SIX}))
    assert (found.std, found.repetitions) == (pytest.approx(variance(SIX) ** 0.5), 5)
    assert found.degrees_of_freedom == pytest.approx(5)
    found = estimate_spread(repetitions({"torch": SIX}, error=0.02))
    assert found.std**2 == pytest.approx(variance(SIX) - 0.02**2)
    # The variance is as uncertain as the larger one that it is a part of.
    assert found.degrees_of_freedom == pytest.approx(5 * (found.std**2 / variance(SIX)) ** 2)
    assert estimate_spread(repetitions({"torch": SIX}, error=0.10)).std == 0.0


def test_configurations_of_a_study_are_not_further_repetitions_of_it() -> None:
    common = repetitions({"torch": SIX, "tf": [log + 1 for log in SIX]})
    assert estimate_spread(common).repetitions == 5
    assert estimate_spread(common).std == pytest.approx(variance(SIX) ** 0.5)
    others = [one._replace(study=f"other {one.study}", group="jax") for one in common[:6]]
    assert estimate_spread([*common, *others]).repetitions == 10
    assert estimate_spread([*common, Repetition("0", "never repeated", 3.0, 0.0)]).repetitions == 5


def test_own_shifts_are_what_a_common_shift_leaves() -> None:
    common = repetitions({"torch": SIX, "tf": [log + 1 for log in SIX]})
    found = estimate_spread(common, of_own_shifts=True)
    assert (found.std, found.repetitions) == (pytest.approx(0.0, abs=1e-6), 5)
    other = [0.02, -0.03, 0.01, 0.04, -0.02, 0.00]
    found = estimate_spread(repetitions({"torch": SIX, "tf": other}), of_own_shifts=True)
    differences = [one - two for one, two in zip(SIX, other, strict=True)]
    assert found.std**2 == pytest.approx(variance(differences) / 2)


def test_the_common_shift_is_what_the_configurations_of_a_study_share() -> None:
    common = repetitions({"torch": SIX, "tf": [log + 1 for log in SIX]}, error=0.02)
    found = common_shifts(common)
    assert [shift.log for shift in found.values()] == pytest.approx([log - fmean(SIX) for log in SIX])
    assert found["0"].variance == pytest.approx(0.02**2 / 2 * 5 / 6)
    # A new version of both has another level: its studies are compared with each other only.
    parts = [one._replace(group=f"{one.group} {int(one.study) > 2}") for one in common]
    assert sum(common_shifts(parts)[str(study)].log for study in range(3)) == pytest.approx(0.0)
    assert common_shifts([Repetition("0", "alone", 3.0, 0.1)])["0"][:2] == (0.0, 0.0)
    assert common_shifts([]) == {}


@pytest.mark.parametrize("of_own_shifts", [False, True])
def test_missing_repetitions_count_as_the_assumed_spread(of_own_shifts: bool) -> None:
    nothing = estimate_spread([], of_own_shifts=of_own_shifts)
    assert (nothing.std, nothing.repetitions, nothing.degrees_of_freedom) == (ASSUMED_STD, 0, None)
    steady, unsteady = (
        estimate_spread(repetitions({"torch": [0.0, shift], "tf": [0.0, 0.0]}), of_own_shifts=of_own_shifts)
        for shift in (0.0, 0.2)
    )
    assert (steady.std, steady.repetitions) == (ASSUMED_STD, 1)
    assert unsteady.std**2 == pytest.approx((0.01 + 4 * ASSUMED_STD**2) / 5)
    assert unsteady.degrees_of_freedom == ENOUGH_REPETITIONS


def test_a_change_of_level_is_not_part_of_the_spread_of_a_series() -> None:
    levels = [*SIX, *(log + 0.3 for log in SIX)]
    changes = [LogRatioChange(two - one, 0.0, 8) for one, two in itertools.pairwise(levels)]
    found = estimate_spread_of_series(changes)
    assert found.repetitions == 11
    assert 0.01 < found.std < 0.06
    assert estimate_spread_of_series(changes[:4]).std >= ASSUMED_STD
    assert estimate_spread_of_series([]).std == ASSUMED_STD


def test_the_errors_of_both_studies_explain_a_part_of_their_change() -> None:
    found = estimate_spread_of_series([LogRatioChange(0.1, 0.004, 8)] * 6)
    assert found.std**2 == pytest.approx(((0.1 / 0.6745) ** 2 - 0.004) / 2)


def test_two_machines_have_independent_shifts() -> None:
    one, two = (estimate_spread(repetitions({"torch": [scale * log for log in SIX]})) for scale in (1, 2))
    assert difference_of_shifts(one, two).variance == pytest.approx(5 * one.std**2)
    same = difference_of_shifts(one, one)
    assert (same.variance, same.degrees_of_freedom) == (pytest.approx(2 * one.std**2), pytest.approx(5))


def measured_change(rng: np.random.Generator, own: float, common: float, controls: int, saved: int) -> LogRatioChange:
    """Return the change between equal studies of five processes, which differ by 3 %, after `saved` repetitions.

    Shifts have these standard deviations; `controls` are other engines.
    """
    studies = saved + 2
    shifts = rng.normal(0, common, (studies, 1)) + rng.normal(0, own, (studies, 1 + controls))
    processes = shifts[..., None] + rng.normal(0, 0.03, (studies, 1 + controls, 5))
    levels, errors = processes.mean(-1), processes.var(-1, ddof=1) / 5
    repetitions = [
        Repetition(str(study), str(group), levels[study, group], errors[study, group])
        for study, group in np.ndindex(levels.shape)
        if (study, group) != (saved + 1, 0)
    ]
    changes = [
        LogRatioChange(one, variance, 4).subtract(LogRatioChange(two, other_variance, 4))
        for one, two, variance, other_variance in zip(*levels[saved:], *errors[saved:], strict=True)
    ]
    spread = estimate_spread(repetitions, of_own_shifts=controls > 0)
    drift = [(-1 / controls, change) for change in changes[1:]]
    own_shifts = math.sqrt(1 + 1 / controls) if controls else 1.0
    return combine((1, changes[0]), *drift, (own_shifts, difference_of_shifts(spread, spread)))


@pytest.mark.parametrize("saved", [0, 1, 5])
@pytest.mark.parametrize("controls", [0, 1, 4])
@pytest.mark.parametrize(("own", "common"), [(0.0, 0.0), (0.02, 0.0), (0.05, 0.0), (0.0, 0.05), (0.02, 0.04)])
def test_few_equal_studies_differ_significantly(own: float, common: float, controls: int, saved: int) -> None:
    rng, pairs = np.random.default_rng(controls), 150
    significant = [measured_change(rng, own, common, controls, saved).p_value < 0.05 for _ in range(pairs)]
    assert fmean(significant) <= 0.05 + 2 * (0.05 * 0.95 / pairs) ** 0.5
