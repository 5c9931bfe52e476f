"""Messages about data-parallel training; see `protocol.messages`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(ge=1e-9)]
"""A measured duration. Ratios divide by it, and no clock here resolves less than a nanosecond."""


class TimeAllReduce(msgspec.Struct, frozen=True, tag="time_all_reduce"):
    """Time blocks of `steps` steps with and without the all-reduce of gradients. Response: AllReduceTimed."""

    steps: int


class AllReduceTimed(msgspec.Struct, frozen=True, tag="all_reduce_timed"):
    """Shortest seconds per step with and without the all-reduce; null if the engine cannot leave it out."""

    seconds_per_step: tuple[Seconds, Seconds] | None
