"""Parts of a training step that are called from Python, so that they can be timed alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

from polybench.core.document.layers import Part
from polybench.engines.base import Replayed


class Call(NamedTuple):
    """`do` does a part once and returns what it computed; `empty` is as in `engines.base.Replayed`, once."""

    do: Callable[[], Any]
    empty: Callable[[], Any] | None = None


@dataclass(frozen=True)
class _Stopwatch:
    """Equal to another one of the same call, so that nothing is timed twice."""

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


def timed(calls: Mapping[Part, Call], synchronize: Callable[[], None]) -> dict[Part, Replayed]:
    """The calls with stopwatches; `synchronize` waits for the device."""
    return {
        part: Replayed(_Stopwatch(do, synchronize), _Stopwatch(empty, synchronize) if empty else None)
        for part, (do, empty) in calls.items()
    }
