"""Combined responses of several ranks."""

from __future__ import annotations

from polybench.protocol.messages import AllocationsCounted, BlockMeasured, Done, NativeAllocationsTraced
from polybench.schema.resources import Allocation, Allocations, Memory, NativeAllocation, SizeClasses
from polybench.worker.combine_ranks import combine_ranks


def test_times_are_those_of_rank_0_and_memory_is_summed() -> None:
    combined = combine_ranks(BlockMeasured([0.1, 0.2], 1, 100), [BlockMeasured([9.0, 9.0], 1, 50)])
    assert combined == BlockMeasured([0.1, 0.2], 1, 150)


def test_allocations_are_summed_and_the_data_set_counts_once() -> None:
    first = AllocationsCounted(
        Memory(peak_rss_bytes=10, rss_anon_bytes=4, rss_file_bytes=6, device_peak_bytes=None),
        Allocations(Allocation(12, 1000, "profiler", "tensors")),
    )
    second = AllocationsCounted(
        Memory(peak_rss_bytes=11, rss_anon_bytes=5, rss_file_bytes=7, device_peak_bytes=None),
        Allocations(Allocation(10, 900, "profiler", "tensors")),
    )
    combined = combine_ranks(first, [second])
    assert combined == AllocationsCounted(
        Memory(peak_rss_bytes=21, rss_anon_bytes=9, rss_file_bytes=7, device_peak_bytes=None),
        Allocations(Allocation(22, 1900, "profiler", "tensors")),
    )


def test_a_field_that_is_unknown_in_one_rank_stays_unknown() -> None:
    first, second = (
        AllocationsCounted(Memory(), Allocations()),
        AllocationsCounted(Memory(rss_file_bytes=5), Allocations()),
    )
    assert combine_ranks(first, [second]) == first


def test_native_allocations_are_summed() -> None:
    first = NativeAllocationsTraced(NativeAllocation(3, 30, 20, SizeClasses(1, 2, 0), "memray", "all"))
    second = NativeAllocationsTraced(NativeAllocation(4, 40, 25, SizeClasses(1, 2, 1), "memray", "all"))
    expected = NativeAllocation(7, 70, 45, SizeClasses(2, 4, 1), "memray", "all")
    assert combine_ranks(first, [second]) == NativeAllocationsTraced(expected)


def test_other_responses_are_those_of_rank_0() -> None:
    assert combine_ranks(Done(), [Done()]) == Done()
