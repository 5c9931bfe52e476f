"""How blocks and rounds are chosen for a group of cells, and when a replicate has done enough."""

from __future__ import annotations

import pytest

from polybench.core.spec import UNTIMED_STEPS, Study
from polybench.planning.pace import Block, Pace

LONG = 10_000
"""Steps in an epoch: more than any block has."""


def pace(share: float = 1.0, **fields: float) -> Pace:
    made = Pace(Study(**({"budget": 60.0, "processes": 5} | fields)), share)  # type: ignore[arg-type]
    made.start_replicate()
    return made


def test_what_the_study_fixes_is_kept() -> None:
    assert pace(steps=7, rounds=3).calibrate([0.01], LONG) == Block(7, 3)


def test_a_block_takes_about_half_a_second_a_cell() -> None:
    block = pace().calibrate([0.01, 0.04], LONG)
    assert block.steps * (0.01 + 0.04) == pytest.approx(2 * 0.5)


def test_the_first_replicate_chooses_and_the_others_keep_to_it() -> None:
    made = pace()
    first = made.calibrate([0.01], LONG)
    made.start_replicate()
    assert made.calibrate([0.02], LONG) == first


def test_each_group_of_cells_is_paced_by_its_own_steps() -> None:
    slow, fast = pace(share=0.5), pace(share=0.5)
    assert slow.calibrate([1.0], LONG).steps < fast.calibrate([0.01], LONG).steps


def test_replicates_share_the_budget_of_their_group_and_what_others_left_of_it() -> None:
    made = Pace(Study(budget=60.0, processes=3), share=0.5)
    assert made.start_replicate() == pytest.approx(10)
    made.spend(4)
    assert made.start_replicate() == pytest.approx(13)


def test_a_replicate_ends_with_its_rounds_or_with_its_budget() -> None:
    made = pace(steps=10, rounds=3, budget=5.0)
    made.calibrate([0.01], LONG)
    assert [made.another_round(done) for done in range(4)] == [True, True, True, False]
    assert not made.cut_short
    made.spend(0.95)
    assert not made.another_round(1)
    assert made.cut_short


def test_the_first_round_is_measured_whatever_it_costs() -> None:
    made = pace(budget=1e-3)
    made.calibrate([10.0], LONG)
    assert made.another_round(0)
    assert not made.another_round(1)


def test_enough_is_enough_for_all_replicates() -> None:
    made = pace(steps=10)
    before = made.calibrate([0.001], LONG)
    made.enough_after(5)
    assert before.rounds > 5
    assert made.block == Block(10, 5)
    assert not made.another_round(5)


def test_a_round_is_paced_with_its_untimed_steps() -> None:
    made = pace(steps=8, budget=5.0)  # a second for this replicate
    assert made.calibrate([0.01], LONG).rounds == 10  # of 0.1 s: two steps more than are timed
    assert UNTIMED_STEPS == 2


def test_repeats_may_take_what_the_rounds_to_come_do_not_need() -> None:
    made = pace(steps=8, rounds=3, budget=50.0)  # 10 s for this replicate
    made.calibrate([0.1], LONG)  # a round takes 1 s
    assert made.spare(0) == pytest.approx(10 - 3)
    made.spend(1.0, repeats=4.0)
    assert made.spare(1) == pytest.approx(10 - 5 - 2)
    made.spend(1.0)
    made.spend(1.0)
    assert made.spare(3) == pytest.approx(3)


def test_repeats_do_not_make_a_round_look_longer() -> None:
    made = pace(steps=8, rounds=3, budget=25.0)  # 5 s
    made.calibrate([0.1], LONG)
    made.spend(1.0, repeats=1.5)
    assert made.another_round(1)
