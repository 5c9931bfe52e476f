"""Timers for operations of a training step that are called from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

from polybench.engines.base import TimedOperation
from polybench.networks.layers import Operation


class OperationCall(NamedTuple):
    """Functions that execute an operation once, and its call overhead once; see `TimedOperation`."""

    run: Callable[[], Any]
    overhead: Callable[[], Any] | None = None


@dataclass(frozen=True)
class _Timer:
    """Times n calls. Timers of the same call are equal, so that shared overheads are timed only once."""

    call: Callable[[], Any]
    synchronize: Callable[[], None]

    def __call__(self, n: int) -> float:
        call = self.call
        self.synchronize()
        start = perf_counter()
        for _ in range(n):
            call()
        self.synchronize()
        return perf_counter() - start


def make_timed_operations(
    calls: Mapping[Operation, OperationCall], synchronize: Callable[[], None]
) -> dict[Operation, TimedOperation]:
    """Add timers to the calls; `synchronize` waits for the device."""
    return {
        operation: TimedOperation(_Timer(run, synchronize), _Timer(overhead, synchronize) if overhead else None)
        for operation, (run, overhead) in calls.items()
    }
