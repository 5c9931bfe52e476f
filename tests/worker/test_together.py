"""What several ranks used, as one."""

from __future__ import annotations

from polybench.core.document.resources import (
    Allocation,
    Allocations,
    Memory,
    NativeAllocation,
    SizeClasses,
)
from polybench.wire.messages import Advanced, Counted, Measured, NativeCounted
from polybench.worker.together import together


def test_times_are_the_first_ones_and_memory_is_added_up() -> None:
    found = together(Measured([0.1, 0.2], 1, 100), [Measured([9.0, 9.0], 1, 50)])
    assert found == Measured([0.1, 0.2], 1, 150)


def test_allocations_are_added_up_and_the_data_set_counts_once() -> None:
    one = Counted(
        Memory(peak_rss_bytes=10, rss_anon_bytes=4, rss_file_bytes=6, device_peak_bytes=None),
        Allocations(Allocation(12, 1000, "profiler", "tensors")),
    )
    two = Counted(
        Memory(peak_rss_bytes=11, rss_anon_bytes=5, rss_file_bytes=7, device_peak_bytes=None),
        Allocations(Allocation(10, 900, "profiler", "tensors")),
    )
    found = together(one, [two])
    assert found == Counted(
        Memory(peak_rss_bytes=21, rss_anon_bytes=9, rss_file_bytes=7, device_peak_bytes=None),
        Allocations(Allocation(22, 1900, "profiler", "tensors")),
    )


def test_what_one_does_not_know_is_not_known() -> None:
    one, two = Counted(Memory(), Allocations()), Counted(Memory(rss_file_bytes=5), Allocations())
    assert together(one, [two]) == one


def test_native_allocations_are_added_up() -> None:
    one = NativeCounted(NativeAllocation(3, 30, 20, SizeClasses(1, 2, 0), "memray", "all"))
    two = NativeCounted(NativeAllocation(4, 40, 25, SizeClasses(1, 2, 1), "memray", "all"))
    expected = NativeAllocation(7, 70, 45, SizeClasses(2, 4, 1), "memray", "all")
    assert together(one, [two]) == NativeCounted(expected)


def test_what_uses_nothing_is_the_first_ones() -> None:
    assert together(Advanced(), [Advanced()]) == Advanced()
