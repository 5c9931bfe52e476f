"""Learning-rate schedules."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from polybench.networks.optimizers import Optimizer


def scheduled_steps(optimizer: Optimizer, first: int, n: int, set_rate: Callable[[float], None]) -> Iterator[int]:
    """Yield the steps first, first + 1, ..., calling `set_rate` before the first and at each change."""
    for steps, rate in optimizer.constant_rate_segments(first, n):
        set_rate(rate)
        yield from steps
