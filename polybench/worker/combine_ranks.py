"""Combines the responses of all ranks: sums where they are meaningful. Times are rank 0's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from polybench.protocol.messages import AllocationsCounted, BlockMeasured, NativeAllocationsTraced, Response
from polybench.schema.resources import (
    Allocation,
    Allocations,
    DeviceAllocation,
    Memory,
    NativeAllocation,
    SizeClasses,
)

StructT = TypeVar("StructT", bound=msgspec.Struct)

_MAX_FIELDS = ("rss_file_bytes",)
"""Fields of which the maximum counts: mapped files are mostly the data set, which ranks share."""


def combine_ranks(first: Response, others: Sequence[Response]) -> Response:
    """Return the first rank's response with the memory and allocations of all ranks.

    The sum of peak resident memory counts pages that ranks share once per rank.
    """
    match first:
        case BlockMeasured():
            measured = [rank for rank in others if isinstance(rank, BlockMeasured)]
            peak = sum(rank.peak_rss_bytes for rank in [first, *measured])
            return msgspec.structs.replace(first, peak_rss_bytes=peak)
        case AllocationsCounted():
            counted = [first, *(rank for rank in others if isinstance(rank, AllocationsCounted))]
            memory = [rank.memory for rank in counted]
            return AllocationsCounted(
                _combine_memory(memory), _combine_allocations([rank.allocations for rank in counted])
            )
        case NativeAllocationsTraced():
            native = [rank.allocation for rank in others if isinstance(rank, NativeAllocationsTraced)]
            return NativeAllocationsTraced(_combine_native_allocations([first.allocation, *native]))
        case _:
            return first


def _combine_memory(ranks: Sequence[Memory]) -> Memory:
    totals = _sum_fields(ranks, Memory.__struct_fields__)
    maxima = {name: max((getattr(rank, name) or 0 for rank in ranks), default=0) for name in _MAX_FIELDS}
    present = {name: value for name, value in maxima.items() if getattr(ranks[0], name) is not None}
    return msgspec.structs.replace(totals, **present)


def _combine_allocations(ranks: Sequence[Allocations]) -> Allocations:
    hosts = [rank.host for rank in ranks if rank.host is not None]
    devices = [rank.device for rank in ranks if rank.device is not None]
    return Allocations(
        host=_sum_fields(hosts, Allocation.__struct_fields__) if hosts else None,
        device=_sum_fields(devices, DeviceAllocation.__struct_fields__) if devices else None,
    )


def _combine_native_allocations(ranks: Sequence[NativeAllocation]) -> NativeAllocation:
    sizes = _sum_fields([rank.by_size for rank in ranks], SizeClasses.__struct_fields__)
    return msgspec.structs.replace(_sum_fields(ranks, NativeAllocation.__struct_fields__), by_size=sizes)


def _sum_fields(ranks: Sequence[StructT], names: Iterable[str]) -> StructT:
    """Return the first rank's values with sums of the fields that are numbers in every rank."""
    sums = {}
    for name in names:
        values = [getattr(rank, name) for rank in ranks]
        if all(isinstance(value, int | float) for value in values):
            sums[name] = sum(values)
    return msgspec.structs.replace(ranks[0], **sums)
