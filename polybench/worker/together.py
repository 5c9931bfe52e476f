"""What several ranks used, as one: sums, where a sum is right. Times are the first rank's own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import msgspec

from polybench.core.document.resources import (
    Allocation,
    Allocations,
    DeviceAllocation,
    Memory,
    NativeAllocation,
    SizeClasses,
)
from polybench.wire.messages import Answer, Counted, Measured, NativeCounted

S = TypeVar("S", bound=msgspec.Struct)

_LARGEST = ("rss_file_bytes",)
"""What is mapped from files is mostly the data set, of which there is one copy."""


def together(own: Answer, others: Sequence[Answer]) -> Answer:
    """The first rank's answer with what all of them used; the others are of its kind.

    Resident memory at its peak is a sum too, in which pages that ranks share count once for each.
    """
    match own:
        case Measured():
            measured = [one for one in others if isinstance(one, Measured)]
            peak = sum(one.peak_rss_bytes for one in [own, *measured])
            return msgspec.structs.replace(own, peak_rss_bytes=peak)
        case Counted():
            counted = [own, *(one for one in others if isinstance(one, Counted))]
            memory = [one.memory for one in counted]
            return Counted(_memory(memory), _allocations([one.allocations for one in counted]))
        case NativeCounted():
            native = [one.allocation for one in others if isinstance(one, NativeCounted)]
            return NativeCounted(_native([own.allocation, *native]))
        case _:
            return own


def _memory(parts: Sequence[Memory]) -> Memory:
    added = _added(parts, Memory.__struct_fields__)
    largest = {name: max((getattr(one, name) or 0 for one in parts), default=0) for name in _LARGEST}
    known = {name: value for name, value in largest.items() if getattr(parts[0], name) is not None}
    return msgspec.structs.replace(added, **known)


def _allocations(parts: Sequence[Allocations]) -> Allocations:
    hosts = [one.host for one in parts if one.host is not None]
    devices = [one.device for one in parts if one.device is not None]
    return Allocations(
        host=_added(hosts, Allocation.__struct_fields__) if hosts else None,
        device=_added(devices, DeviceAllocation.__struct_fields__) if devices else None,
    )


def _native(parts: Sequence[NativeAllocation]) -> NativeAllocation:
    sizes = _added([one.by_size for one in parts], SizeClasses.__struct_fields__)
    return msgspec.structs.replace(_added(parts, NativeAllocation.__struct_fields__), by_size=sizes)


def _added(parts: Sequence[S], names: Iterable[str]) -> S:
    """The first with the sums of all that are numbers in each; what one does not know, none does."""
    sums = {}
    for name in names:
        values = [getattr(one, name) for one in parts]
        if all(isinstance(value, int | float) for value in values):
            sums[name] = sum(values)
    return msgspec.structs.replace(parts[0], **sums)
