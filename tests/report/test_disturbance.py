"""What the kernel counted -> what a row says."""

from __future__ import annotations

import pytest

from polybench.core.document.resources import Disturbance
from polybench.core.document.result import Result
from polybench.core.document.times import Samples
from polybench.machine.meters.kernel import KernelUse
from polybench.machine.meters.usage import BlockUsage
from polybench.report.disturbance import add_disturbance
from tests.factories import measured


def row(*blocks: BlockUsage, heap: str = "system", cell: str = "torch/cpu") -> Result:
    """Of a cell with two blocks of 8 timed steps of 10 ms, and 2 untimed ones."""
    result = measured(cell, 0.010)
    result.samples = Samples("step", 1, [[[0.010] * 8, [0.010] * 8]])
    add_disturbance(result, blocks, heap)
    return result


def block(use: KernelUse | None, fault_seconds: float = 0.0) -> BlockUsage:
    return BlockUsage(0.1, 0.2, kernel=use, fault_seconds=fault_seconds)


def test_counts_are_means_of_all_steps_of_a_block() -> None:
    result = row(block(KernelUse(30, 0, 5, 1, 0.04)), block(KernelUse(10, 2, 5, 9, 0.06)))
    assert result.disturbance == Disturbance(
        run_delay_seconds_per_step=pytest.approx(0.005),
        minor_faults_per_step=2.0,
        major_faults_per_step=0.1,
        voluntary_switches_per_step=0.5,
        involuntary_switches_per_step=0.5,
    )
    assert result.warnings == []


def test_what_the_kernel_does_not_say_is_null() -> None:
    result = row(block(KernelUse(20, 0, 0, 0, None)), block(KernelUse(20, 0, 0, 0, 0.1)))
    assert result.disturbance.run_delay_seconds_per_step is None
    assert result.disturbance.minor_faults_per_step == 2.0
    assert row(block(None)).disturbance == Disturbance()


@pytest.mark.parametrize(
    ("heap", "cell", "advice"),
    [
        ("system", "torch/cpu", "--heap keep has it stay"),
        ("keep", "torch+systemheap/cpu", "--heap keep has it stay"),
        ("keep", "tf/cpu", "the engine or its allocator gives memory back by itself"),
    ],
)
def test_page_faults_that_matter_are_told_with_what_helps(heap: str, cell: str, advice: str) -> None:
    use = KernelUse(40_000, 0, 0, 0, 0.0)
    (warning,) = row(block(use, 0.02), block(use, 0.02), heap=heap, cell=cell).warnings
    assert warning.startswith("page faults: 4,000 a step, up to 2.00 ms of it (20%)")
    assert warning.endswith(advice)
    assert row(block(use, 0.002), block(use, 0.002), heap=heap, cell=cell).warnings == []
