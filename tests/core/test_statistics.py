from __future__ import annotations

import math
from statistics import fmean

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import ttest_rel

from polybench.core.statistics import (
    Ratio,
    difference,
    differs,
    half_width,
    mean_of_rounds,
    mean_step,
    median_interval,
    ratio,
    rising_trend,
    step_seconds,
    steps_to_break_even,
)

Nested = list[list[list[float]]]

seconds = st.floats(1e-5, 10)
rounds = st.lists(st.lists(seconds, min_size=1, max_size=5), min_size=1, max_size=4)
nested = st.lists(rounds, min_size=1, max_size=4)


def scaled(samples: Nested, factor: float) -> Nested:
    return [[[factor * second for second in one] for one in process] for process in samples]


def test_the_median_of_six_lies_between_their_extremes() -> None:
    assert median_interval([3.0, 1.0, 2.0, 9.0, 4.0, 5.0]) == (1.0, 9.0)
    assert median_interval([3.0, 1.0, 2.0, 9.0, 4.0]) is None  # 1 in 16 has all five on one side


class TestMeanOfRounds:
    @given(
        st.lists(
            st.lists(st.tuples(*[st.floats(-1, 10)] * 3), min_size=1, max_size=4), min_size=1, max_size=4
        )
    )
    def test_a_whole_is_the_sum_of_its_parts(self, processes: list[list[tuple[float, ...]]]) -> None:
        parts = [[[values[part] for values in rounds] for rounds in processes] for part in range(3)]
        whole = [[sum(values) for values in rounds] for rounds in processes]
        total = sum(mean_of_rounds(part)[0] for part in parts)
        assert mean_of_rounds(whole)[0] == pytest.approx(total, abs=1e-12)

    def test_interval_is_over_processes(self) -> None:
        value, interval = mean_of_rounds([[1.0, 1.0, 1.0], [2.0], [3.0]])
        # Mean 2, standard error 1/sqrt(3), t(2) = 4.3027.
        assert value == 2
        assert interval == pytest.approx((2 - 4.3027 / 3**0.5, 2 + 4.3027 / 3**0.5), rel=1e-4)

    def test_interval_within_one_run_is_over_rounds(self) -> None:
        assert mean_of_rounds([[1.0, 2.0, 3.0]]) == mean_of_rounds([[1.0], [2.0], [3.0]])
        assert mean_of_rounds([[1.0]]) == (1.0, None)
        with pytest.raises(ValueError, match="no values"):
            mean_of_rounds([[]])


class TestStepSeconds:
    def test_summarizes_all_samples(self) -> None:
        summary = step_seconds([[[1.0, 2.0], [3.0]], [[4.0, 10.0]]], "step")
        # Of medians 1.5 and 3, which are one process, and 7, which is another.
        assert summary.median == pytest.approx(math.sqrt(math.sqrt(1.5 * 3) * 7))
        assert (summary.mean, summary.min, summary.n) == (4.0, 1.0, 5)
        assert summary.std == pytest.approx(np.std([1, 2, 3, 4, 10], ddof=1))
        assert summary.p05 == pytest.approx(1.2)
        assert summary.p95 == pytest.approx(8.8)

    def test_interval_is_over_processes(self) -> None:
        summary = step_seconds([[[1.0] * 9, [1.0]], [[math.e] * 3], [[math.e**2]]], "step")
        # Logs 0, 1, 2: mean 1, standard error 1/sqrt(3), t(2) = 4.3027.
        half = 4.302653 / math.sqrt(3)
        assert summary.interval95 == pytest.approx((math.exp(1 - half), math.exp(1 + half)))

    def test_interval_of_one_process_is_over_rounds(self) -> None:
        assert step_seconds([[[1.0], [1.1], [1.2]]], "step").interval95 is not None
        assert step_seconds([[[1.0, 1.1]]], "step").interval95 is None

    def test_block_means_have_no_quantiles(self) -> None:
        summary = step_seconds([[[1.0, 2.0]]], "block")
        assert summary.p05 is summary.p95 is summary.std is None
        assert summary.median == pytest.approx(1.5)

    def test_one_sample(self) -> None:
        summary = step_seconds([[[1.0]]], "step")
        assert summary.std is None
        assert summary.p05 == summary.p95 == 1.0

    def test_empty_rounds_are_skipped(self) -> None:
        assert step_seconds([[[], [1.0]], [], [[2.0]]], "step").n == 2

    def test_no_sample_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="no samples"):
            step_seconds([[[]]], "step")

    @given(nested)
    def test_order_of_statistics(self, samples: Nested) -> None:
        summary = step_seconds(samples, "step")
        assert summary.p05 is not None
        assert summary.p95 is not None
        assert summary.min <= summary.p05 <= summary.p95
        largest = max(second for process in samples for one in process for second in one)
        assert summary.min * (1 - 1e-12) <= summary.median <= largest * (1 + 1e-12)

    @given(nested)
    @example([[[1.0] * 9], [[1.1]], [[1.12]], [[1.12]], [[1.12]]])  # outside it is the median of all samples
    def test_interval_contains_value(self, samples: Nested) -> None:
        summary = step_seconds(samples, "step")
        if summary.interval95:
            low, high = summary.interval95
            assert low * (1 - 1e-12) <= summary.median <= high * (1 + 1e-12)

    @given(nested, st.data())
    def test_two_cells_have_the_ratio_that_is_shown_as_speedup(
        self, one: Nested, data: st.DataObject
    ) -> None:
        # What differs between rounds moves the medians of rounds and those of their ratios differently.
        factors = [data.draw(st.floats(0.1, 10)) for _ in one]
        two = [
            [[factor * second for second in part] for part in process]
            for factor, process in zip(factors, one, strict=True)
        ]
        found = step_seconds(one, "step").median / step_seconds(two, "step").median
        assert found == pytest.approx(ratio(one, two).value)


class TestMeanStep:
    def test_a_pause_that_few_steps_meet_is_in_the_mean_alone(self) -> None:
        paused = [[[1.0, 1.0, 1.0, 2.0], [1.0, 2.0, 1.0, 1.0]], [[1.0, 1.0, 2.0, 1.0]]]
        assert mean_step(paused)[0] == pytest.approx(1.25)
        assert step_seconds(paused, "step").median == 1.0
        assert ratio([[[1.25]], [[1.25]]], paused, fmean).value == pytest.approx(1.0)
        assert ratio([[[1.25]], [[1.25]]], paused).value == pytest.approx(1.25)

    @given(nested)
    def test_of_rounds_of_one_sample_both_are_the_same(self, samples: Nested) -> None:
        blocks = [[[fmean(one)] for one in process] for process in samples]
        summary = step_seconds(blocks, "block")
        assert mean_step(blocks) == (summary.median, summary.interval95) == mean_step(samples)

    def test_no_sample_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="no samples"):
            mean_step([[[]]])


class TestRatio:
    def test_above_one_is_faster(self) -> None:
        assert ratio([[[2.0, 2.0, 9.0]]], [[[1.0]]]).value == pytest.approx(2)

    def test_by_hand(self) -> None:
        baseline = [[[2.0], [4.0]], [[1.0], [1.0]]]
        other = [[[1.0], [1.0]], [[1.0], [1.0]]]
        found = ratio(baseline, other)
        # Process means of the logs: 1.5 log 2 and 0; t(1) = 12.7062.
        centre = 0.75 * math.log(2)
        half = 12.706205 * (1.5 * math.log(2) / math.sqrt(2)) / math.sqrt(2)
        assert found.value == pytest.approx(math.exp(centre))
        assert found.interval95 == pytest.approx((math.exp(centre - half), math.exp(centre + half)))
        assert found.scope == "processes"

    def test_a_round_that_is_far_off_does_not_move_it(self) -> None:
        quiet = [[[1.0]] * 5, [[1.1]] * 5]
        burst = [[[1.0], [30.0], [1.0], [1.0], [1.0]], [[1.1]] * 5]
        assert ratio(burst, quiet) == ratio(quiet, quiet)

    def test_pairs_only_what_both_have(self) -> None:
        baseline = [[[2.0], [2.0], [50.0]], [[2.0]], [[99.0]]]
        other = [[[1.0], [1.0]], [[1.0], [7.0]]]
        found = ratio(baseline, other)
        assert found.value == pytest.approx(2)
        assert found.interval95 == pytest.approx((2, 2))

    def test_one_process_is_within_one_run(self) -> None:
        found = ratio([[[2.0], [2.2]]], [[[1.0], [1.0]]])
        assert found.scope == "within one run"
        assert found.interval95 is not None

    def test_one_round_has_no_interval(self) -> None:
        assert ratio([[[2.0]]], [[[1.0]]]) == Ratio(2.0, None, "within one run")

    @pytest.mark.parametrize(("one", "two"), [([], [[[1.0]]]), ([[[1.0]]], [[]]), ([[[], [1.0]]], [[[1.0]]])])
    def test_nothing_in_common_is_an_error(self, one: Nested, two: Nested) -> None:
        with pytest.raises(ValueError, match="no round"):
            ratio(one, two)

    @given(nested, nested)
    def test_inverse(self, one: Nested, two: Nested) -> None:
        forth, back = ratio(one, two), ratio(two, one)
        assert forth.value * back.value == pytest.approx(1)
        if forth.interval95 and back.interval95:
            assert forth.interval95[0] * back.interval95[1] == pytest.approx(1)

    @given(nested, nested, st.floats(0.01, 100))
    def test_does_not_depend_on_the_unit(self, one: Nested, two: Nested, factor: float) -> None:
        assert ratio(scaled(one, factor), scaled(two, factor)).value == pytest.approx(ratio(one, two).value)
        assert ratio(one, scaled(two, factor)).value == pytest.approx(ratio(one, two).value / factor)

    @given(nested, nested)
    def test_interval_contains_value(self, one: Nested, two: Nested) -> None:
        found = ratio(one, two)
        if found.interval95:
            low, high = found.interval95
            assert low * (1 - 1e-12) <= found.value <= high * (1 + 1e-12)

    @given(nested)
    def test_a_cell_does_not_differ_from_itself(self, samples: Nested) -> None:
        assert ratio(samples, samples).value == 1
        assert not differs(ratio(samples, samples))


class TestVerdict:
    @pytest.mark.parametrize(
        ("interval", "expected"),
        [((1.01, 1.2), True), ((0.8, 0.99), True), ((0.9, 1.1), False), (None, None)],
    )
    def test_differs(self, interval: tuple[float, float] | None, expected: bool | None) -> None:
        assert differs(Ratio(1.0, interval, "processes")) is expected

    def test_no_verdict_within_one_run(self) -> None:
        assert differs(Ratio(2.0, (1.9, 2.1), "within one run")) is None

    def test_half_width(self) -> None:
        assert half_width(Ratio(2.0, (1.9, 2.1), "processes")) == pytest.approx(0.05)
        assert half_width(Ratio(2.0, None, "within one run")) == math.inf


class TestDifference:
    def test_interval_is_that_of_students_paired_test(self) -> None:
        one, two = [0.51, 0.49, 0.53, 0.50], [0.52, 0.49, 0.55, 0.51]
        value, interval = difference(one, two)
        expected = ttest_rel(two, one).confidence_interval(0.95)
        assert value == pytest.approx(0.01)
        assert interval == pytest.approx((expected.low, expected.high))

    def test_what_pairs_have_in_common_does_not_widen_it(self) -> None:
        assert difference([0.1, 0.9], [0.2, 1.0])[1] == pytest.approx((0.1, 0.1))

    def test_one_pair_has_no_interval(self) -> None:
        assert difference([0.5], [0.75]) == (0.25, None)

    def test_unpaired_values_are_refused(self) -> None:
        for one, two in (([], []), ([0.5], [0.5, 0.6])):
            with pytest.raises(ValueError, match=r"pairs|longer"):
                difference(one, two)


class TestRisingTrend:
    def noisy(self, seed: int, rise: float, rounds: int = 8) -> Nested:
        rng = np.random.default_rng(seed)
        drift = np.log1p(rise) * np.arange(rounds) / (rounds - 1)
        levels = rng.normal(0, 0.03, (5, 1)) + rng.normal(0, 0.01, (5, rounds)) + drift
        samples: Nested = np.exp(levels)[:, :, None].tolist()
        return samples

    def test_finds_a_rise(self) -> None:
        found = rising_trend(self.noisy(0, rise=0.06))
        assert found == pytest.approx(0.06, abs=0.02)

    def test_one_disturbed_round_is_no_trend(self) -> None:
        samples = [[[1.0 + 0.001 * (-1) ** one_round] for one_round in range(8)] for _ in range(5)]
        samples[4][7] = [3.0]
        assert rising_trend(samples) is None

    def test_a_fall_is_no_rise(self) -> None:
        assert rising_trend(self.noisy(1, rise=-0.1)) is None

    def test_rarely_found_in_noise(self) -> None:
        assert sum(rising_trend(self.noisy(seed, rise=0)) is not None for seed in range(300)) <= 6

    def test_constant_times(self) -> None:
        assert rising_trend([[[1.0]] * 8] * 3) is None

    def test_needs_five_rounds(self) -> None:
        assert rising_trend([[[float(n)] for n in range(1, 5)]] * 5) is None
        assert rising_trend([[[float(n)] for n in range(1, 6)]] * 5) is not None


class TestBreakEven:
    def test_by_hand(self) -> None:
        assert steps_to_break_even(5.0, 0.25, 1.0, 0.5) == 17
        assert steps_to_break_even(5.1, 0.25, 1.0, 0.5) == 18

    def test_never_behind(self) -> None:
        assert steps_to_break_even(1.0, 1.0, 1.0, 0.5) == 0

    @pytest.mark.parametrize("step", [0.5, 0.6])
    def test_never_repaid(self, step: float) -> None:
        assert steps_to_break_even(5.0, step, 1.0, 0.5) is None

    @given(st.floats(0, 100), seconds, st.floats(0, 100), seconds)
    def test_is_the_first_step_at_which_a_is_level(
        self, start_a: float, a: float, start_b: float, b: float
    ) -> None:
        steps = steps_to_break_even(start_a, a, start_b, b)
        if steps:
            tolerance = 1e-9 * (1 + start_a + start_b + steps * (a + b))
            # The first step is in the start.
            assert start_a + (steps - 1) * a <= start_b + (steps - 1) * b + tolerance
            assert start_a + (steps - 2) * a >= start_b + (steps - 2) * b - tolerance
