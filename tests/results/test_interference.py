"""Tests of the summary of the kernel's counters, and of affected rounds."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polybench.log import BlockTimed
from polybench.results.interference import (
    drop_affected_rounds,
    inconclusive_reason,
    page_fault_warnings,
    summarize_interference,
    throttling_warnings,
)
from polybench.schema.resources import BlockCounters, Interference
from polybench.schema.result import Result, StepTimes
from tests.factories import measured


def result_with(*blocks: BlockCounters, malloc: str = "system", configuration: str = "torch/cpu") -> Result:
    """Return a result with two timing blocks of 8 timed steps of 10 ms and 2 warm-up steps."""
    result = measured(configuration, 0.010)
    result.step_times = StepTimes("step", 1, [[[0.010] * 8, [0.010] * 8]])
    result.interference = summarize_interference([[timed(one) for one in blocks]])
    variants = (result.variant or "").split("+")
    result.warnings += page_fault_warnings(result.interference, result.step_time, variants, malloc)
    result.warnings += throttling_warnings(result.interference)
    return result


def timed(counters: BlockCounters) -> BlockTimed:
    return BlockTimed(
        configuration="torch/cpu",
        process=0,
        round=0,
        step_seconds=[0.010] * 8,
        steps_per_value=1,
        peak_rss_bytes=1,
        counters=counters,
    )


def block(**changes: Any) -> BlockCounters:
    return msgspec.structs.replace(BlockCounters(0.1, 0.2, 0.0, 0.0), **changes)


def counted(minor: int, major: int, voluntary: int, involuntary: int, delay: float | None) -> BlockCounters:
    return block(
        minor_faults=minor,
        major_faults=major,
        voluntary_switches=voluntary,
        involuntary_switches=involuntary,
        cpu_wait_seconds=delay,
    )


def test_counters_are_means_over_all_steps_of_a_block() -> None:
    blocks = counted(30, 0, 5, 1, 0.04), counted(10, 2, 5, 9, 0.06)
    result = result_with(*blocks)
    assert result.interference == Interference(
        cpu_wait_seconds_per_step=pytest.approx(0.005),
        minor_faults_per_step=2.0,
        major_faults_per_step=0.1,
        voluntary_switches_per_step=0.5,
        involuntary_switches_per_step=0.5,
        blocks_rerun=0,
        blocks_affected=0,
        blocks=[list(blocks)],
    )
    assert result.warnings == []


def test_missing_counters_are_null() -> None:
    result = result_with(counted(20, 0, 0, 0, None), counted(20, 0, 0, 0, 0.1))
    assert result.interference.cpu_wait_seconds_per_step is None
    assert result.interference.minor_faults_per_step == 2.0
    assert result_with(block()).interference.minor_faults_per_step is None


def test_rerun_and_affected_blocks_are_counted() -> None:
    interference = result_with(block(reruns=1), block(reruns=3, affected=True)).interference
    assert (interference.blocks_rerun, interference.blocks_affected) == (2, 1)


def test_ratio_is_inconclusive_if_many_blocks_are_affected() -> None:
    unaffected = result_with(*[block()] * 8)
    some = result_with(*[block()] * 6, *[block(affected=True)] * 2)
    many = result_with(*[block()] * 5, *[block(affected=True)] * 3, configuration="tf/cpu")
    assert inconclusive_reason(unaffected, some) is None
    assert (
        inconclusive_reason(unaffected, many)
        == inconclusive_reason(many, unaffected)
        == "interference affected 3 of 8 timing blocks of tf/cpu"
    )


@pytest.mark.parametrize(
    ("malloc", "configuration", "explanation"),
    [
        ("system", "torch/cpu", "try --malloc retain"),
        ("retain", "torch+system_malloc/cpu", "try --malloc retain"),
        ("retain", "tf/cpu", "the engine or its allocator returns memory to the kernel"),
    ],
)
def test_expensive_page_faults_are_reported_with_a_fix(malloc: str, configuration: str, explanation: str) -> None:
    use = counted(40_000, 0, 0, 0, 0.0)

    def faulting(seconds: float) -> list[str]:
        slow = msgspec.structs.replace(use, page_fault_seconds=seconds)
        return result_with(slow, slow, malloc=malloc, configuration=configuration).warnings

    (warning,) = faulting(0.02)
    assert warning.startswith("page faults: 4,000 per step take up to 2.00 ms (20%); ")
    assert warning.endswith(explanation)
    assert faulting(0.002) == []
    assert list(page_fault_warnings(Interference(), None, [], malloc)) == []


@pytest.mark.parametrize(
    ("affected", "expected"),
    [
        ([False, False, False, False], [[1.0], [2.0], [3.0], [4.0]]),
        ([False, True, False, False], [[1.0], [], [3.0], [4.0]]),
        ([True, True, False, False], [[1.0], [2.0], [3.0], [4.0]]),  # too few would remain
        ([False, True], [[1.0], [2.0], [3.0], [4.0]]),  # counters of other rounds
        ([], [[1.0], [2.0], [3.0], [4.0]]),
    ],
)
def test_affected_rounds_are_dropped_unless_too_few_remain(affected: list[bool], expected: list[list[float]]) -> None:
    counters = [[block(affected=one) for one in affected]]
    assert drop_affected_rounds([[[1.0], [2.0], [3.0], [4.0]]], counters) == [expected]


def test_throttling_by_a_quota_is_a_warning_of_the_row() -> None:
    (warning,) = result_with(block(throttled_seconds=0.05), block(throttled_seconds=0.0)).warnings
    assert warning == (
        "the CPU quota of this container stopped the worker for 50.0 ms of its timing blocks; raise the quota, or use"
        " fewer --threads"
    )
    assert result_with(block(throttled_seconds=0.01), block()).warnings != []  # 1 % of 0.41 s
    assert result_with(block(throttled_seconds=0.001), block()).warnings == []
