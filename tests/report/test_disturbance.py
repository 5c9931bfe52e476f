"""What the kernel counted -> what a row says."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from polybench.core.document.resources import BlockReading, Disturbance
from polybench.core.document.result import Result
from polybench.core.document.times import Samples
from polybench.report.disturbance import add_disturbance, no_verdict, undisturbed
from tests.factories import measured


def row(*blocks: BlockReading, heap: str = "system", cell: str = "torch/cpu") -> Result:
    """Of a cell with two blocks of 8 timed steps of 10 ms, and 2 untimed ones."""
    result = measured(cell, 0.010)
    result.samples = Samples("step", 1, [[[0.010] * 8, [0.010] * 8]])
    add_disturbance(result, [blocks], heap)
    return result


def block(**changes: Any) -> BlockReading:
    return msgspec.structs.replace(BlockReading(0.1, 0.2, 0.0, 0.0), **changes)


def counted(minor: int, major: int, own: int, forced: int, delay: float | None) -> BlockReading:
    return block(
        minor_faults=minor,
        major_faults=major,
        voluntary_switches=own,
        involuntary_switches=forced,
        run_delay_seconds=delay,
    )


def test_counts_are_means_of_all_steps_of_a_block() -> None:
    blocks = counted(30, 0, 5, 1, 0.04), counted(10, 2, 5, 9, 0.06)
    result = row(*blocks)
    assert result.disturbance == Disturbance(
        run_delay_seconds_per_step=pytest.approx(0.005),
        minor_faults_per_step=2.0,
        major_faults_per_step=0.1,
        voluntary_switches_per_step=0.5,
        involuntary_switches_per_step=0.5,
        blocks_repeated=0,
        blocks_disturbed=0,
        blocks=[list(blocks)],
    )
    assert result.warnings == []


def test_what_the_kernel_does_not_say_is_null() -> None:
    result = row(counted(20, 0, 0, 0, None), counted(20, 0, 0, 0, 0.1))
    assert result.disturbance.run_delay_seconds_per_step is None
    assert result.disturbance.minor_faults_per_step == 2.0
    assert row(block()).disturbance.minor_faults_per_step is None


def test_repeated_and_disturbed_blocks_are_counted() -> None:
    disturbance = row(block(repeats=2), block(repeats=3, disturbed=True)).disturbance
    assert (disturbance.blocks_repeated, disturbance.blocks_disturbed) == (2, 1)


def test_a_ratio_of_a_disturbed_cell_is_no_verdict() -> None:
    quiet = row(*[block()] * 8)
    some = row(*[block()] * 6, *[block(disturbed=True)] * 2)
    many = row(*[block()] * 5, *[block(disturbed=True)] * 3, cell="tf/cpu")
    assert no_verdict(quiet, some) is None
    assert no_verdict(quiet, many) == no_verdict(many, quiet) == "3 of 8 blocks of tf/cpu were disturbed"


@pytest.mark.parametrize(
    ("heap", "cell", "advice"),
    [
        ("system", "torch/cpu", "--heap keep has it stay"),
        ("keep", "torch+systemheap/cpu", "--heap keep has it stay"),
        ("keep", "tf/cpu", "the engine or its allocator gives memory back by itself"),
    ],
)
def test_page_faults_that_matter_are_told_with_what_helps(heap: str, cell: str, advice: str) -> None:
    use = counted(40_000, 0, 0, 0, 0.0)

    def faulting(seconds: float) -> list[str]:
        slow = msgspec.structs.replace(use, fault_seconds=seconds)
        return row(slow, slow, heap=heap, cell=cell).warnings

    (warning,) = faulting(0.02)
    assert warning.startswith("page faults: 4,000 a step, up to 2.00 ms of it (20%)")
    assert warning.endswith(advice)
    assert faulting(0.002) == []


@pytest.mark.parametrize(
    ("disturbed", "kept"),
    [
        ([False, False, False], [[1.0], [2.0], [3.0]]),
        ([False, True, False], [[1.0], [], [3.0]]),
        ([True, True, False], [[1.0], [2.0], [3.0]]),  # too few would be left
        ([False, True], [[1.0], [2.0], [3.0]]),  # not of these rounds
        ([], [[1.0], [2.0], [3.0]]),
    ],
)
def test_disturbed_rounds_are_left_out_while_most_remain(
    disturbed: list[bool], kept: list[list[float]]
) -> None:
    readings = [[block(disturbed=one) for one in disturbed]]
    assert undisturbed([[[1.0], [2.0], [3.0]]], readings) == [kept]
