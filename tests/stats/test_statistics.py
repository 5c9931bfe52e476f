from __future__ import annotations

import math
import warnings
from statistics import fmean

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import ttest_1samp, ttest_rel

from polybench.stats.statistics import (
    Ratio,
    compare_turns,
    correct_p_values,
    difference,
    margin_of_error,
    mean_over_rounds,
    mean_step,
    median_interval,
    p_value,
    q_values,
    ratio,
    steps_to_break_even,
    student_interval,
    summarize_step_times,
    typical_step,
    upward_trend,
    upward_trend_of_processes,
)

Nested = list[list[list[float]]]

seconds = st.floats(1e-5, 10)
rounds = st.lists(st.lists(seconds, min_size=1, max_size=5), min_size=1, max_size=4)
nested = st.lists(rounds, min_size=1, max_size=4)


def scaled(step_times: Nested, factor: float) -> Nested:
    return [[[factor * second for second in one] for one in process] for process in step_times]


def test_the_interval_of_a_median_is_the_range_of_six_values() -> None:
    assert median_interval([3.0, 1.0, 2.0, 9.0, 4.0, 5.0]) == (1.0, 9.0)
    assert median_interval([3.0, 1.0, 2.0, 9.0, 4.0]) is None  # 1 in 16 has all five on one side


class TestMeanOverRounds:
    @given(st.lists(st.lists(st.tuples(*[st.floats(-1, 10)] * 3), min_size=1, max_size=4), min_size=1, max_size=4))
    def test_a_total_is_the_sum_of_its_parts(self, processes: list[list[tuple[float, ...]]]) -> None:
        parts = [[[values[part] for values in rounds] for rounds in processes] for part in range(3)]
        total_values = [[sum(values) for values in rounds] for rounds in processes]
        total = sum(mean_over_rounds(part)[0] for part in parts)
        assert mean_over_rounds(total_values)[0] == pytest.approx(total, abs=1e-12)

    def test_the_interval_is_over_processes(self) -> None:
        value, interval = mean_over_rounds([[1.0, 1.0, 1.0], [2.0], [3.0]])
        # Mean 2, standard error 1/sqrt(3), t(2) = 4.3027.
        assert value == 2
        assert interval == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), rel=1e-4)

    def test_the_interval_of_one_process_is_over_rounds(self) -> None:
        assert mean_over_rounds([[1.0, 2.0, 3.0]]) == mean_over_rounds([[1.0], [2.0], [3.0]])
        assert mean_over_rounds([[1.0]]) == (1.0, None)
        assert mean_over_rounds([[1.0, 3.0], [5.0]])[0] == 3.5
        with pytest.raises(ValueError, match=r"^no values$"):
            mean_over_rounds([[]])


class TestSummarizeStepTimes:
    def test_all_step_times_are_summarized(self) -> None:
        summary = summarize_step_times([[[1.0, 2.0], [3.0]], [[4.0, 10.0]]], "step")
        # Medians 1.5 and 3 are from one process, 7 is from another.
        assert summary.median == pytest.approx(math.sqrt(math.sqrt(1.5 * 3) * 7))
        # One process has the mean 2, the other 7.
        assert (summary.mean, summary.min, summary.n) == (4.5, 1.0, 5)
        assert summary.std == pytest.approx(np.std([1, 2, 3, 4, 10], ddof=1))
        assert summary.p05 == pytest.approx(1.2)
        assert summary.p95 == pytest.approx(8.8)
        assert summarize_step_times([[[1.0, 3.0]]], "step").std == pytest.approx(math.sqrt(2))

    def test_the_interval_is_over_processes(self) -> None:
        summary = summarize_step_times([[[1.0] * 9, [1.0]], [[2.0] * 3], [[3.0]]], "step")
        # Relative deviations -0.5, 0, 0.5: standard error 0.5 / sqrt(3), t(2) = 4.3027.
        half = 4.302653 * 0.5 / math.sqrt(3)
        assert summary.mean == 2.0
        assert summary.ci95 == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)))

    def test_affected_rounds_are_in_the_distribution_only(self) -> None:
        summary = summarize_step_times([[[1.0, 3.0], [50.0]]], "step", [[[1.0, 3.0], []]])
        assert (summary.mean, summary.median, summary.n, summary.p95) == (2.0, 2.0, 3, pytest.approx(45.3))

    def test_the_interval_of_one_process_is_over_rounds(self) -> None:
        assert summarize_step_times([[[1.0], [1.1], [1.2]]], "step").ci95 is not None
        assert summarize_step_times([[[1.0, 1.1]]], "step").ci95 is None

    def test_block_means_have_no_quantiles(self) -> None:
        summary = summarize_step_times([[[1.0, 2.0]]], "block")
        assert summary.p05 is summary.p95 is summary.std is None
        assert summary.median == pytest.approx(1.5)

    def test_empty_rounds_are_skipped(self) -> None:
        summary = summarize_step_times([[[], [1.0]], []], "step")
        assert (summary.n, summary.std, summary.p05, summary.p95) == (1, None, 1.0, 1.0)
        with pytest.raises(ValueError, match=r"^no step times$"):
            summarize_step_times([[[]]], "step")

    @given(nested)
    def test_statistics_are_ordered(self, step_times: Nested) -> None:
        summary = summarize_step_times(step_times, "step")
        assert summary.p05 is not None
        assert summary.p95 is not None
        assert summary.min <= summary.p05 <= summary.p95
        largest = max(second for process in step_times for one in process for second in one)
        for value in (summary.mean, summary.median):
            assert summary.min * (1 - 1e-12) <= value <= largest * (1 + 1e-12)

    @given(nested)
    @example([[[1.0] * 9], [[1.1]], [[1.12]], [[1.12]], [[1.12]]])  # the median of all step times is outside
    def test_the_interval_contains_the_value(self, step_times: Nested) -> None:
        summary = summarize_step_times(step_times, "step")
        if summary.ci95:
            low, high = summary.ci95
            assert low * (1 - 1e-12) <= summary.mean <= high * (1 + 1e-12)

    @given(st.lists(st.tuples(rounds, rounds), min_size=2, max_size=4))
    def test_the_ratio_of_two_step_times_is_the_speedup(self, pairs: list[tuple[Nested, Nested]]) -> None:
        one, two = map(list, zip(*pairs, strict=True))
        found = summarize_step_times(one, "step").mean / summarize_step_times(two, "step").mean
        assert found == pytest.approx(ratio(one, two).speedup)


class TestMeanStep:
    def test_a_rare_pause_is_in_the_mean_only(self) -> None:
        paused = [[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0], [1.0, 5.0, 1.0, 1.0]], [[1.0, 1.0, 2.0, 1.0]] * 3]
        assert mean_step(paused)[0] == pytest.approx((16 / 12 + 1.25) / 2)
        assert summarize_step_times(paused, "step").median == 1.0
        assert ratio([[[2.0]], [[3.0]]], paused).speedup == pytest.approx(2.5 / mean_step(paused)[0])

    def test_its_interval_is_over_processes(self) -> None:
        levels = [1.0, 1.1, 1.3]
        mean, interval = mean_step([[[0.5 * level, 1.5 * level], [level]] for level in levels])
        relative = student_interval([level / mean for level in levels])
        assert relative is not None
        assert mean == pytest.approx(fmean(levels))
        assert interval == pytest.approx(tuple(mean * math.exp(bound - 1) for bound in relative))

    def test_one_process_has_an_interval_over_its_rounds(self) -> None:
        assert mean_step([[[1.0, 2.0], [2.0, 2.0], []]])[1] == mean_step([[[1.5]], [[2.0]]])[1]
        assert mean_step([[[1.0, 2.0]]]) == (1.5, None)
        assert mean_step([[[1.0], [3.0]], [[5.0]]])[0] == 3.5

    def test_no_step_times_are_an_error(self) -> None:
        calls = (mean_step, [[[]]]), (typical_step, [[]])
        for call, *arguments in calls:
            with pytest.raises(ValueError, match=r"^no step times$"):
                call(*arguments)
        with pytest.raises(ValueError, match=r"^no process was measured for both configurations$"):
            compare_turns([[[1.0]]], [])


class TestCorrection:
    def test_known_values(self) -> None:
        # Holm's example: the smallest of n times n, the next one times n - 1; never decreasing.
        assert correct_p_values([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
        assert correct_p_values([0.6, 0.7]) == [1.0, 1.0]
        assert correct_p_values([]) == []

    @pytest.mark.parametrize("levels", [[0.1, 0.2, 0.4], [-1.0, 1.0], [3.0, 3.0]])
    def test_the_p_value_is_that_of_a_t_test(self, levels: list[float]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # equal values
            assert p_value(levels) == pytest.approx(ttest_1samp(levels, 0).pvalue)

    def test_equal_levels_are_certain(self) -> None:
        assert (p_value([0.0, 0.0]), p_value([1.0])) == (1.0, None)


class TestRatio:
    def test_known_values(self) -> None:
        baseline = [[[2.0], [4.0]], [[1.0], [1.0]]]
        other = [[[1.0], [1.0]], [[1.0], [1.0]]]
        found = ratio(baseline, other)
        # Process means 3 and 1, and 1 and 1: deviations 0.5 and -0.5 relative to the mean 2; t(1) = 12.7062.
        half = 12.706205 * 0.5
        assert found.speedup == 2
        assert found.ci95 == pytest.approx((2 * math.exp(-half), 2 * math.exp(half)))
        assert found.scope == "processes"
        assert found.p_value == pytest.approx(p_value([math.log(2) + 0.5, math.log(2) - 0.5]))

    def test_effects_that_both_have_cancel(self) -> None:
        one = [[[level]] for level in (1.0, 1.2, 1.5)]
        found = ratio(scaled(one, 2.0), one)
        assert (found.speedup, found.ci95) == (pytest.approx(2.0), pytest.approx((2.0, 2.0)))

    def test_a_burst_moves_the_mean_but_not_the_typical_step(self) -> None:
        unaffected = [[[1.0]] * 5, [[1.1]] * 5]
        burst = [[[1.0], [30.0], [1.0], [1.0], [1.0]], [[1.1]] * 5]
        assert ratio(burst, unaffected).speedup == pytest.approx((34 / 5 + 1.1) / 2.1)
        assert typical_step(burst) == typical_step(unaffected)

    def test_all_rounds_of_processes_that_both_have_count(self) -> None:
        baseline = [[[2.0], [2.0], [5.0]], [[3.0]], [[99.0]]]
        other = [[[1.0], [], [2.0]], [[1.5], [1.5]]]
        found = ratio(baseline, other)
        assert found.speedup == pytest.approx(2)
        assert found.ci95 == pytest.approx((2, 2))

    def test_rounds_of_one_process_form_pairs(self) -> None:
        found = ratio([[[2.0], [9.0], [4.0]]], [[[1.0], [], [2.0]]])
        assert (found.speedup, found.ci95) == (2, pytest.approx((2, 2)))
        assert ratio([[[2.0], []]], [[[], [1.0]]]) == Ratio(2.0, None, "single_process")

    def test_one_process_has_the_scope_single_process(self) -> None:
        found = ratio([[[2.0], [2.2]]], [[[1.0], [1.0]]])
        assert found.scope == "single_process"
        assert found.ci95 is not None

    def test_one_round_has_no_interval(self) -> None:
        assert ratio([[[2.0]]], [[[1.0]]]) == Ratio(2.0, None, "single_process")

    @pytest.mark.parametrize(("one", "two"), [([], [[[1.0]]]), ([[[1.0]]], [[]]), ([[[1.0]], []], [[], [[1.0]]])])
    def test_no_common_process_is_an_error(self, one: Nested, two: Nested) -> None:
        with pytest.raises(ValueError, match=r"^no process was measured for both configurations$"):
            ratio(one, two)

    @given(nested, nested)
    def test_the_inverse_ratio_has_the_inverse_interval(self, one: Nested, two: Nested) -> None:
        forth, back = ratio(one, two), ratio(two, one)
        assert forth.speedup * back.speedup == pytest.approx(1)
        if forth.ci95 and back.ci95:
            assert forth.ci95[0] * back.ci95[1] == pytest.approx(1)

    @given(nested, nested, st.floats(0.01, 100))
    def test_the_ratio_does_not_depend_on_the_unit(self, one: Nested, two: Nested, factor: float) -> None:
        assert ratio(scaled(one, factor), scaled(two, factor)).speedup == pytest.approx(ratio(one, two).speedup)
        assert ratio(one, scaled(two, factor)).speedup == pytest.approx(ratio(one, two).speedup / factor)

    @given(nested, nested)
    def test_the_interval_contains_the_value(self, one: Nested, two: Nested) -> None:
        found = ratio(one, two)
        if found.ci95:
            low, high = found.ci95
            assert low * (1 - 1e-12) <= found.speedup <= high * (1 + 1e-12)

    @given(nested)
    def test_a_configuration_does_not_differ_from_itself(self, step_times: Nested) -> None:
        assert ratio(step_times, step_times).speedup == 1


def test_the_margin_of_error_is_relative() -> None:
    assert margin_of_error(Ratio(2.0, (1.9, 2.1), "processes")) == pytest.approx(0.05)
    assert margin_of_error(Ratio(2.0, None, "single_process")) == math.inf


class TestDifference:
    def test_the_interval_is_that_of_students_paired_test(self) -> None:
        one, two = [0.51, 0.49, 0.53, 0.50], [0.52, 0.49, 0.55, 0.51]
        value, interval, probability = difference(one, two)
        expected = ttest_rel(two, one).confidence_interval(0.95)
        assert probability == pytest.approx(ttest_rel(two, one).pvalue)
        assert value == pytest.approx(0.01)
        assert interval == pytest.approx((expected.low, expected.high))
        assert difference([0.1, 0.9], [0.2, 1.0])[1] == pytest.approx((0.1, 0.1))
        assert difference([0.5], [0.75]) == (0.25, None, None)

    def test_unpaired_values_are_rejected(self) -> None:
        for one, two in (([], []), ([0.5], [0.5, 0.6])):
            with pytest.raises(ValueError, match=r"^no pairs|longer"):
                difference(one, two)


class TestUpwardTrend:
    def noisy(self, seed: int, rise: float, rounds: int = 8) -> Nested:
        rng = np.random.default_rng(seed)
        drift = np.log1p(rise) * np.arange(rounds) / (rounds - 1)
        levels = rng.normal(0, 0.03, (5, 1)) + rng.normal(0, 0.01, (5, rounds)) + drift
        step_times: Nested = np.exp(levels)[:, :, None].tolist()
        return step_times

    def test_a_rise_is_found(self) -> None:
        found = upward_trend(self.noisy(0, rise=0.06))
        assert found == pytest.approx(0.06, abs=0.02)

    def test_a_rise_is_that_from_the_first_round_to_the_last(self) -> None:
        assert upward_trend([[[1.01**number] for number in range(8)]]) == pytest.approx(1.01**7 - 1)

    def test_a_rise_does_not_depend_on_the_levels_of_processes(self) -> None:
        step_times = self.noisy(0, rise=0.06)
        levels = [scaled([process], 2.0**number)[0] for number, process in enumerate(step_times)]
        assert upward_trend(levels) == pytest.approx(upward_trend(step_times))

    def test_one_outlying_round_is_not_a_trend(self) -> None:
        step_times = [[[1.0 + 0.001 * (-1) ** one_round] for one_round in range(8)] for _ in range(5)]
        step_times[4][7] = [3.0]
        assert upward_trend(step_times) is None

    def test_an_outlying_first_round_hides_no_trend(self) -> None:
        rising = [[1.01**number] for number in range(8)]
        assert upward_trend([rising, [[1.3], *rising[1:]]]) == pytest.approx(1.01**7 - 1)

    def test_a_fall_is_not_a_rise(self) -> None:
        assert upward_trend(self.noisy(1, rise=-0.1)) is None

    def test_a_trend_is_rarely_found_in_noise(self) -> None:
        assert sum(upward_trend(self.noisy(seed, rise=0)) is not None for seed in range(300)) <= 6

    def test_constant_times_have_no_trend(self) -> None:
        assert upward_trend([[[1.0]] * 8] * 3) is None
        assert upward_trend([[[1.0]] * 9 + [[2.0]]] * 5) is None  # only the last round is longer
        assert upward_trend([[[1.0]] * 4 + [[2.0]] * 4] * 5) is not None

    def test_a_trend_requires_five_rounds(self) -> None:
        assert upward_trend([[[float(n)] for n in range(1, 5)]] * 5) is None
        assert upward_trend([[[float(n)] for n in range(1, 6)]] * 5) is not None

    def test_a_trend_over_processes_needs_several_results(self) -> None:
        throttled = [[[1.0]], [[1.01]], [[0.99]], [[1.3]], [[1.32]]]
        assert upward_trend_of_processes([throttled]) is None
        assert upward_trend_of_processes([throttled] * 4) == pytest.approx(0.35, abs=0.1)
        assert upward_trend_of_processes([throttled[::-1]] * 4) is None
        assert upward_trend_of_processes([]) is None


class TestBreakEven:
    def test_known_values(self) -> None:
        assert steps_to_break_even(5.0, 0.25, 1.0, 0.5) == 17
        assert steps_to_break_even(5.1, 0.25, 1.0, 0.5) == 18
        assert steps_to_break_even(1.5, 0.25, 1.0, 0.5) == 3
        assert steps_to_break_even(1.0, 1.0, 1.0, 0.5) == 0

    @pytest.mark.parametrize("step", [0.5, 0.6])
    def test_a_slower_step_never_breaks_even(self, step: float) -> None:
        assert steps_to_break_even(5.0, step, 1.0, 0.5) is None

    @given(st.floats(0, 100), seconds, st.floats(0, 100), seconds)
    def test_the_result_is_the_first_step_at_which_a_has_caught_up(
        self, start_a: float, a: float, start_b: float, b: float
    ) -> None:
        steps = steps_to_break_even(start_a, a, start_b, b)
        if steps:
            tolerance = 1e-9 * (1 + start_a + start_b + steps * (a + b))
            # A start includes the first step.
            assert start_a + (steps - 1) * a <= start_b + (steps - 1) * b + tolerance
            assert start_a + (steps - 2) * a >= start_b + (steps - 2) * b - tolerance


def test_turns_are_compared_pair_by_pair() -> None:
    """Relative to the means 6 and 1.5, the levels deviate by -1/3 and 1/3 in both: the ratio is certain."""
    found = compare_turns([[[3.0], [3.0], [6.0]], [[8.0]], [[99.0]]], [[[1.0]], [[2.0]]])
    assert found == Ratio(pytest.approx(4.0), pytest.approx((4.0, 4.0)), "processes")
    apart = compare_turns([[[4.0]], [[8.0]]], [[[2.0]], [[1.0]]])  # deviations -1/3 - 1/3 and 1/3 + 1/3, t(1) = 12.7062
    half = 12.706205 * 2 / 3
    assert apart.ci95 == pytest.approx((4 * math.exp(-half), 4 * math.exp(half)))
    assert compare_turns([[[2.0]]], [[[1.0]]]) == Ratio(pytest.approx(2.0), None, "single_process")
    assert compare_turns([[[2.0]]], [[[8.0]]], work=16.0).speedup == pytest.approx(4.0)


def test_a_ratio_of_means_is_within_its_interval() -> None:
    found = ratio([[[0.03]], [[0.031]], [[0.029]]], [[[0.01]], [[0.0101]], [[0.0102]]])
    assert found.ci95 is not None
    assert 2 < found.ci95[0] < found.speedup < found.ci95[1] < 4


def test_q_values_limit_the_false_discovery_rate() -> None:
    assert q_values([0.01, 0.02, 0.5]) == pytest.approx([0.03, 0.03, 0.5])
    assert q_values([0.5, 0.01, 0.04, 0.03]) == pytest.approx([0.5, 0.04, 0.16 / 3, 0.16 / 3])
    assert q_values([]) == []
