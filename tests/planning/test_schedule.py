"""Rounds, blocks and groups."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polybench.planning import schedule

CELLS = ["torch/cpu", "tf/cpu", "flux/cpu"]


def test_each_round_has_every_cell_once_in_an_order_that_is_repeatable() -> None:
    orders = [
        schedule.order_of_round(CELLS, 0, process, number) for process in range(5) for number in range(10)
    ]
    assert all(sorted(order) == sorted(CELLS) for order in orders)
    assert len({tuple(order) for order in orders}) == 6
    assert orders[7] == schedule.order_of_round(CELLS, 0, 0, 7)


def test_no_cell_is_always_first() -> None:
    first = [schedule.order_of_round(CELLS, 0, 0, number)[0] for number in range(300)]
    for cell in CELLS:
        assert 60 < first.count(cell) < 140


def test_a_block_takes_about_half_a_second() -> None:
    assert schedule.steps_per_round([0.016, 0.010], share=12.0, steps_in_epoch=390) == 38


def test_a_small_budget_shortens_blocks_but_not_below_five_steps() -> None:
    assert schedule.steps_per_round([0.016, 0.010], share=1.0, steps_in_epoch=390) == 7
    assert schedule.steps_per_round([0.5], share=0.5, steps_in_epoch=390) == 5


def test_a_block_is_never_longer_than_an_epoch() -> None:
    assert schedule.steps_per_round([0.001], share=60.0, steps_in_epoch=4) == 4


def test_rounds_stop_at_a_look_when_time_reaches_one() -> None:
    assert schedule.rounds_that_fit(round_seconds=1.0, share=12.0) == 10
    assert schedule.rounds_that_fit(round_seconds=1.0, share=1000.0) == schedule.LOOKS[-1]
    assert schedule.rounds_that_fit(round_seconds=1.0, share=3.5) == 3
    assert schedule.rounds_that_fit(round_seconds=10.0, share=1.0) == 1


@given(
    st.lists(st.integers(1, 100), min_size=1, max_size=12),
    st.integers(1, 150),
)
def test_groups_keep_order_and_fit_unless_one_cell_alone_does_not(sizes: list[int], available: int) -> None:
    by_cell = dict(enumerate(sizes))
    grouped = schedule.groups(by_cell, available)
    assert [cell for group in grouped for cell in group] == list(by_cell)
    for group in grouped:
        assert len(group) == 1 or sum(by_cell[cell] for cell in group) <= available
