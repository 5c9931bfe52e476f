"""Rounds, blocks and groups."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.planning import schedule
from polybench.planning.plan import estimated_bytes, resolve
from polybench.planning.schedule import RoundBudget, TimingBlocks
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK, Study

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


@pytest.mark.parametrize(
    ("step_seconds", "share", "steps_in_epoch", "steps"),
    [
        pytest.param([0.016, 0.010], 12.0, 390, 38, id="half a second per configuration"),
        pytest.param([0.016, 0.010], 1.0, 390, 7, id="a fifth of a small budget"),
        pytest.param([0.5], 0.5, 390, 5, id="at least five steps"),
        pytest.param([0.001], 60.0, 4, 4, id="at most an epoch"),
        pytest.param([0.001], 60.0, 10_000, 200, id="at most 200 steps"),
        pytest.param([0.0001, 0.0002], 60.0, 10_000, 1000, id="a tenth of a second of the fastest"),
    ],
)
def test_a_timing_block_fits_the_budget(
    step_seconds: list[float], share: float, steps_in_epoch: int, steps: int
) -> None:
    assert schedule.steps_per_round(step_seconds, share, steps_in_epoch) == steps


def test_rounds_are_rounded_down_to_a_stopping_check() -> None:
    assert schedule.max_rounds(round_seconds=1.0, share=12.0) == 10
    assert schedule.max_rounds(round_seconds=1.0, share=1000.0) == schedule.STOPPING_CHECKS[-1]
    assert schedule.max_rounds(round_seconds=1.0, share=3.5) == 3
    assert schedule.max_rounds(round_seconds=10.0, share=1.0) == 1


@pytest.mark.parametrize(("model", "copies"), [("lenet", [1, 0]), ("char-gpt", [2, 2])])
def test_workers_hold_the_indices_of_tokens_or_the_engines_copy_of_images(model: str, copies: list[int]) -> None:
    plan = resolve(Study(engines=("tf", "torch"), devices=("cpu",), model=model, data="synthetic", threads=1))
    sizes = [[estimated_bytes(plan, one, epoch) for one in plan.configurations] for epoch in (0, 1000)]
    assert [after - before for before, after in zip(*sizes, strict=True)] == [1000 * number for number in copies]


@given(st.lists(st.integers(1, 100), min_size=1, max_size=12), st.integers(1, 150))
def test_groups_keep_order_and_fit_into_memory_except_single_configurations(sizes: list[int], available: int) -> None:
    by_configuration = dict(enumerate(sizes))
    grouped = schedule.groups(by_configuration, available)
    assert [configuration for group in grouped for configuration in group] == list(by_configuration)
    for group in grouped:
        assert len(group) == 1 or sum(by_configuration[configuration] for configuration in group) <= available
    for group, following in itertools.pairwise(grouped):
        assert sum(by_configuration[configuration] for configuration in (*group, following[0])) > available


LONG = 10_000
"""Steps in an epoch: more than in any timing block."""


def make_budget(share: float = 1.0, **fields: float) -> RoundBudget:
    made = RoundBudget.of(Study(**({"budget": 60.0, "processes": 5} | fields)), share)  # type: ignore[arg-type]
    made.start_process_run()
    return made


def test_explicit_steps_and_rounds_are_used() -> None:
    assert make_budget(steps_per_round=7, rounds_per_process=3).calibrate([0.01], LONG) == TimingBlocks(7, 3)


def test_the_first_process_run_chooses_for_all() -> None:
    made = make_budget()
    first = made.calibrate([0.01], LONG)
    made.start_process_run()
    assert made.calibrate([0.02], LONG) == first


def test_each_group_is_calibrated_by_its_own_steps() -> None:
    slow, fast = make_budget(share=0.5), make_budget(share=0.5)
    assert slow.calibrate([1.0], LONG).steps < fast.calibrate([0.01], LONG).steps


def test_process_runs_share_their_groups_budget_and_inherit_unused_time() -> None:
    made = RoundBudget.of(Study(budget=60.0, processes=3), share=0.5)
    assert made.start_process_run() == pytest.approx(10)
    made.spend(4)
    assert made.start_process_run() == pytest.approx(13)


def test_a_process_run_ends_with_its_rounds_or_its_budget() -> None:
    made = make_budget(steps_per_round=10, rounds_per_process=3, budget=5.0)
    made.calibrate([0.01], LONG)
    assert [made.has_another_round(done) for done in range(4)] == [True, True, True, False]
    assert not made.cut_short
    made.spend(0.95)
    assert not made.has_another_round(1)
    assert made.cut_short


def test_a_budget_that_ended_once_stays_so_when_later_rounds_fit() -> None:
    made = make_budget(steps_per_round=10, rounds_per_process=3, budget=5.0)  # 1 s for each process run
    made.calibrate([0.01], LONG)
    made.spend(0.95)
    assert not made.has_another_round(1)
    made.start_process_run()
    assert made.has_another_round(1)
    assert made.cut_short


def test_the_first_round_is_always_measured() -> None:
    made = make_budget(budget=1e-3)
    made.calibrate([10.0], LONG)
    assert made.has_another_round(0)
    assert not made.has_another_round(1)


def test_stopping_early_applies_to_all_process_runs() -> None:
    made = make_budget(steps_per_round=10)
    before = made.calibrate([0.001], LONG)
    made.stop_after(5)
    assert before.rounds > 5
    assert made.block == TimingBlocks(10, 5)
    assert not made.has_another_round(5)


def test_round_time_includes_untimed_steps() -> None:
    made = make_budget(steps_per_round=10 - WARMUP_STEPS_PER_BLOCK, budget=5.0)  # a second for this process run
    assert made.calibrate([0.01], LONG).rounds == 10  # of 0.1 s


def test_reruns_may_use_time_that_remaining_rounds_do_not_need() -> None:
    made = make_budget(steps_per_round=8, rounds_per_process=3, budget=50.0)  # 10 s for this process run
    made.calibrate([0.1], LONG)  # a round takes 1 s
    assert made.start_round(0) == pytest.approx(10 - 3)
    made.spend(1.0, reruns=4.0)
    assert made.start_round(1) == pytest.approx(10 - 5 - 2)
    made.spend(1.0)
    made.spend(1.0)
    assert made.start_round(3) == pytest.approx(3)


def test_reruns_do_not_lengthen_the_estimate_of_a_round() -> None:
    made = make_budget(steps_per_round=8, rounds_per_process=3, budget=25.0)  # 5 s
    made.calibrate([0.1], LONG)
    made.spend(1.0, reruns=1.5)
    assert made.has_another_round(1)
