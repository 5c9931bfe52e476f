"""An engine that records its calls, for tests of what a worker measures."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Iterator
from typing import Literal

from polybench.engines.fake.engine import FakeEngine


class Recorder(FakeEngine):
    """Records resets, steps and drained batches; a step takes one second of a simulated clock."""

    def __init__(self, resolution: Literal["step", "block"] = "step") -> None:
        super().__init__()
        self.timing_resolution = resolution
        self.calls: list[str] = []

    def reset(self) -> None:
        self.calls.append("reset")

    def run_steps(self, first: int, n: int) -> float:
        self.calls.append(f"run {first}+{n}")
        return float(n)

    def drain_pipeline(self, first: int, n: int) -> float:
        self.calls.append(f"drain {first}+{n}")
        return float(n)


@contextlib.contextmanager
def uncollected_garbage() -> Iterator[weakref.ref[Recorder]]:
    """Yield a reference to garbage that lives until the collector is called."""
    gc.disable()
    try:
        cycle = Recorder()
        cycle.reset = cycle.reset  # type: ignore[method-assign]
        garbage = weakref.ref(cycle)
        del cycle
        yield garbage
    finally:
        gc.enable()
