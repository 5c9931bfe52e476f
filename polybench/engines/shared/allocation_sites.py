"""Aggregation of allocation events by site, with the allocations that reusing a block would avoid."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from polybench.schema.measurements import AllocationSite


class AllocEvent(NamedTuple):
    """Allocation of `size` bytes by a site."""

    address: int
    site: str
    size: int


class FreeEvent(NamedTuple):
    """Release of the block at an address."""

    address: int


class _SiteTotals:
    """Totals of one site over all steps."""

    def __init__(self) -> None:
        self.calls = self.size = self.avoidable = self.avoidable_size = 0


def aggregate(steps: Iterable[Iterable[AllocEvent | FreeEvent]]) -> list[AllocationSite]:
    """Return means per step for each site, by bytes in descending order.

    An allocation is avoidable if a free block of the same size exists. Such a block was allocated and freed
    earlier in the same step, and serves only one later allocation.
    """
    totals: dict[str, _SiteTotals] = defaultdict(_SiteTotals)
    count = 0
    for events in steps:
        count += 1
        live: dict[int, int] = {}
        free: Counter[int] = Counter()
        for event in events:
            if isinstance(event, FreeEvent):
                # Blocks that an earlier step allocated do not count.
                free.update([live.pop(event.address)] if event.address in live else [])
                continue
            live[event.address] = event.size
            site = totals[event.site]
            site.calls += 1
            site.size += event.size
            if free[event.size]:
                free[event.size] -= 1
                site.avoidable += 1
                site.avoidable_size += event.size
    sites = [
        AllocationSite(name, t.size / count, t.calls / count, t.avoidable / count, t.avoidable_size / count)
        for name, t in totals.items()
    ]
    return sorted(sites, key=lambda site: -site.bytes_per_step)
