"""Learning rates that change during the training."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from polybench.core.optimizers import Optimizer


def at_rates(optimizer: Optimizer, first: int, n: int, set_rate: Callable[[float], None]) -> Iterator[int]:
    """The steps first, first + 1, ...; `set_rate` is called before the first and where the rate changes."""
    for steps, rate in optimizer.stretches(first, n):
        set_rate(rate)
        yield from steps
