"""Data-parallel training: what several replicas of a network gain, and what they take to stay the same."""

from __future__ import annotations

from typing import Literal

import msgspec

from polybench.core.document.times import Positive


class Scaling(msgspec.Struct, frozen=True):
    """Speed in relation to the same cell with one replica; above 1 is faster. The batch is the same.

    `efficiency` is that speed over `devices`: how many times the devices of one replica these have. On GPUs
    that is their number. On the CPU it is 1: all numbers of replicas share the study's threads.
    """

    single_cell: str
    speedup: Positive
    interval95: tuple[Positive, Positive] | None
    devices: int
    efficiency: float
    scope: Literal["processes", "within one run"] = "processes"
    no_verdict: str | None = None


class Communication(msgspec.Struct, frozen=True):
    """What is saved of a step where gradients are not exchanged; what is done meanwhile counts nothing.

    Waiting for a slower replica is in it. A difference of two times; 0 is less than they tell.
    """

    seconds_per_step: float
    share: float
    """Of a step with the exchange, in the same turns."""
    source: str
