"""Data-parallel training: the speed-up of several replicas, and the cost of their communication."""

from __future__ import annotations

import msgspec

from polybench.schema.times import Positive, Scope


class Scaling(msgspec.Struct, frozen=True):
    """Speed relative to the same configuration with one replica, at the same batch size; above 1 is faster.

    `efficiency` is `speedup` / `devices`. `devices` is the ratio of the numbers of devices: the number of
    GPUs, or 1 on the CPU, where any number of replicas shares the study's threads.
    """

    baseline: str
    speedup: Positive
    ci95: tuple[Positive, Positive] | None
    devices: int
    efficiency: float
    scope: Scope = "processes"
    inconclusive_reason: str | None = None


class Communication(msgspec.Struct, frozen=True):
    """The step time saved without the exchange of gradients; exchange hidden behind computation counts as 0.

    It includes the wait for a slower replica. It is a difference of two times; 0 means too small to measure.
    """

    seconds_per_step: float
    fraction: float
    """Fraction of a step with the exchange, measured in the same rounds."""
    source: str
