"""Who allocates, and what a step could do without: sums over events in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from polybench.core.document.places import Place
from polybench.engines.support.places import Allocated, Freed, add_up

EVENTS = st.lists(
    st.builds(Allocated, st.integers(0, 5), st.sampled_from("ab"), st.integers(1, 4))
    | st.builds(Freed, st.integers(0, 5))
)


def test_a_block_of_the_same_size_that_was_freed_before_is_reusable_once() -> None:
    step = [
        Allocated(1, "conv", 100),
        Freed(1),
        Allocated(2, "relu", 100),
        Allocated(3, "pool", 100),
        Allocated(4, "pool", 50),
        Freed(4),
        Allocated(4, "loss", 51),
    ]
    assert add_up([step]) == [
        Place("pool", 150, 2, 0, 0),
        Place("conv", 100, 1, 0, 0),
        Place("relu", 100, 1, 1, 100),
        Place("loss", 51, 1, 0, 0),
    ]


def test_what_an_earlier_step_allocated_or_freed_is_no_block_of_this_one() -> None:
    steps = [
        [Allocated(1, "conv", 8), Allocated(2, "conv", 8), Freed(2)],
        [Freed(1), Allocated(3, "conv", 8)],
    ]
    assert add_up(steps) == [Place("conv", 12, 1.5, 0, 0)]


def test_nothing_allocated_is_no_place() -> None:
    assert add_up([]) == add_up([[], [Freed(1)]]) == []


@given(st.lists(EVENTS, min_size=1, max_size=3))
def test_sums_are_of_all_events_and_never_more_is_reused_than_was_freed(
    steps: list[list[Allocated | Freed]],
) -> None:
    places = add_up(steps)
    made = [event for events in steps for event in events if isinstance(event, Allocated)]
    freed = sum(isinstance(event, Freed) for events in steps for event in events)
    assert round(sum(place.bytes_per_step for place in places) * len(steps)) == sum(
        event.size for event in made
    )
    assert round(sum(place.calls_per_step for place in places) * len(steps)) == len(made)
    assert round(sum(place.reusable_per_step or 0 for place in places) * len(steps)) <= min(freed, len(made))
    sizes = [place.bytes_per_step for place in places]
    assert sizes == sorted(sizes, reverse=True)
