"""Aggregation of allocation events by site, and avoidable allocations."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polybench.engines.shared.allocation_sites import AllocEvent, FreeEvent, aggregate
from polybench.schema.measurements import AllocationSite

EVENTS = st.lists(
    st.builds(AllocEvent, st.integers(0, 5), st.sampled_from("ab"), st.integers(1, 4))
    | st.builds(FreeEvent, st.integers(0, 5))
)


def test_a_freed_block_makes_one_later_allocation_of_its_size_avoidable() -> None:
    step = [
        AllocEvent(1, "conv", 100),
        FreeEvent(1),
        AllocEvent(2, "relu", 100),
        AllocEvent(3, "pool", 100),
        AllocEvent(4, "pool", 50),
        FreeEvent(4),
        AllocEvent(4, "loss", 51),
    ]
    assert aggregate([step]) == [
        AllocationSite("pool", 150, 2, 0, 0),
        AllocationSite("conv", 100, 1, 0, 0),
        AllocationSite("relu", 100, 1, 1, 100),
        AllocationSite("loss", 51, 1, 0, 0),
    ]


def test_blocks_of_earlier_steps_are_not_reused() -> None:
    steps = [
        [AllocEvent(1, "conv", 8), AllocEvent(2, "conv", 8), FreeEvent(2)],
        [FreeEvent(1), AllocEvent(3, "conv", 8)],
    ]
    assert aggregate(steps) == [AllocationSite("conv", 12, 1.5, 0, 0)]


def test_without_allocations_there_are_no_sites() -> None:
    assert aggregate([]) == aggregate([[], [FreeEvent(1)]]) == []


@given(st.lists(EVENTS, min_size=1, max_size=3))
def test_all_allocations_are_counted_and_avoidable_ones_never_exceed_the_freed_ones(
    steps: list[list[AllocEvent | FreeEvent]],
) -> None:
    sites = aggregate(steps)
    allocated = [event for events in steps for event in events if isinstance(event, AllocEvent)]
    freed = sum(isinstance(event, FreeEvent) for events in steps for event in events)
    assert round(sum(site.bytes_per_step for site in sites) * len(steps)) == sum(event.size for event in allocated)
    assert round(sum(site.count_per_step for site in sites) * len(steps)) == len(allocated)
    assert round(sum(site.avoidable_allocations_per_step or 0 for site in sites) * len(steps)) <= min(
        freed, len(allocated)
    )
    sizes = [site.bytes_per_step for site in sites]
    assert sizes == sorted(sizes, reverse=True)
