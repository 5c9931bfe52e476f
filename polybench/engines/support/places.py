"""A step's allocations in order -> who made them, and how many the step could do without."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from polybench.core.document.places import Place


class Allocated(NamedTuple):
    """A block of so many bytes, for this place."""

    address: int
    place: str
    size: int


class Freed(NamedTuple):
    """The block that begins here."""

    address: int


class _Sum:
    """What one place allocated in all steps."""

    def __init__(self) -> None:
        self.calls = self.size = self.reusable = self.reusable_size = 0


def add_up(steps: Iterable[Iterable[Allocated | Freed]]) -> list[Place]:
    """Means over the steps, by bytes, most first.

    An allocation is reusable if a block of the same size is free: one that the same step allocated and freed
    before, and that no other allocation has been counted to reuse.
    """
    sums: dict[str, _Sum] = defaultdict(_Sum)
    count = 0
    for events in steps:
        count += 1
        live: dict[int, int] = {}
        free: Counter[int] = Counter()
        for event in events:
            if isinstance(event, Freed):
                # What an earlier step allocated is no block of this one.
                free.update([live.pop(event.address)] if event.address in live else [])
                continue
            live[event.address] = event.size
            found = sums[event.place]
            found.calls += 1
            found.size += event.size
            if free[event.size]:
                free[event.size] -= 1
                found.reusable += 1
                found.reusable_size += event.size
    places = [
        Place(name, s.size / count, s.calls / count, s.reusable / count, s.reusable_size / count)
        for name, s in sums.items()
    ]
    return sorted(places, key=lambda place: -place.bytes_per_step)
