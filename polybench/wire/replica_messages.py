"""What parent and worker say to each other of replicas; see `wire.messages`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Seconds = Annotated[float, Meta(ge=1e-9)]
"""What was timed; ratios are made of it, and no clock here tells a shorter time from none."""


class TimeExchange(msgspec.Struct, frozen=True, tag="time_exchange"):
    """Time blocks of `steps` steps, with and without the exchange of gradients. Answer: ExchangeTimed."""

    steps: int


class ExchangeTimed(msgspec.Struct, frozen=True, tag="exchange_timed"):
    """Seconds of a step with the exchange, and without, at best; null where it cannot be left out."""

    seconds: tuple[Seconds, Seconds] | None
