"""Rounds, blocks and groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polybench.planning import schedule

CONFIGURATIONS = ["torch/cpu", "tf/cpu", "flux/cpu"]


def test_each_round_has_every_configuration_once_in_a_repeatable_order() -> None:
    orders = [
        schedule.order_of_round(CONFIGURATIONS, 0, process, number) for process in range(5) for number in range(10)
    ]
    assert all(sorted(order) == sorted(CONFIGURATIONS) for order in orders)
    assert len({tuple(order) for order in orders}) == 6
    assert orders[7] == schedule.order_of_round(CONFIGURATIONS, 0, 0, 7)


def test_every_configuration_is_first_in_some_round() -> None:
    first = [schedule.order_of_round(CONFIGURATIONS, 0, 0, number)[0] for number in range(300)]
    for configuration in CONFIGURATIONS:
        assert 60 < first.count(configuration) < 140


def test_a_timing_block_takes_about_half_a_second() -> None:
    assert schedule.steps_per_round([0.016, 0.010], share=12.0, steps_in_epoch=390) == 38


def test_a_small_budget_shortens_blocks_to_at_least_five_steps() -> None:
    assert schedule.steps_per_round([0.016, 0.010], share=1.0, steps_in_epoch=390) == 7
    assert schedule.steps_per_round([0.5], share=0.5, steps_in_epoch=390) == 5


def test_a_timing_block_is_never_longer_than_an_epoch() -> None:
    assert schedule.steps_per_round([0.001], share=60.0, steps_in_epoch=4) == 4


def test_rounds_are_rounded_down_to_a_stopping_check() -> None:
    assert schedule.max_rounds(round_seconds=1.0, share=12.0) == 10
    assert schedule.max_rounds(round_seconds=1.0, share=1000.0) == schedule.STOPPING_CHECKS[-1]
    assert schedule.max_rounds(round_seconds=1.0, share=3.5) == 3
    assert schedule.max_rounds(round_seconds=10.0, share=1.0) == 1


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=12),
    st.integers(1, 150),
)
def test_groups_keep_order_and_fit_into_memory_except_single_configurations(sizes: list[int], available: int) -> None:
    by_configuration = dict(enumerate(sizes))
    grouped = schedule.groups(by_configuration, available)
    assert [configuration for group in grouped for configuration in group] == list(by_configuration)
    for group in grouped:
        assert len(group) == 1 or sum(by_configuration[configuration] for configuration in group) <= available
