"""What `polybench overhead` prints: the fixed cost of a step, and the cost of a sample.

Schema history:
    polybench.overhead/1  first version
"""

from __future__ import annotations

import msgspec

from polybench.core.document.circumstances import Host, Tool, Unit
from polybench.core.document.row import Row
from polybench.core.document.study import decoded

OVERHEAD_ID = "overhead-"
"""How the ID of an overhead begins; what follows is that of its study that was begun first."""

Interval = tuple[float, float]


class OverheadPoint(msgspec.Struct, frozen=True):
    """The step time at one batch size."""

    batch_size: int
    seconds_per_step: float
    interval95: Interval | None


class OverheadIntervals(msgspec.Struct, frozen=True):
    """At the 95 % level, over processes; null with one process."""

    fixed_seconds: Interval | None
    seconds_per_sample: Interval | None


class EngineOverhead(Row, kw_only=True):
    """seconds of a step = fixed_seconds + seconds_per_sample x batch size, for one cell.

    `half_batch` is the batch size at which arithmetic is half of a step. `worst` is by how much a point
    differs from the line at most, as a fraction: where it is large, the cost is no line. `call_seconds` is
    what a call of the engine from Python takes beside its step, the median over the batch sizes: for Flux the
    bridge to Julia, and whatever an engine keeps out of its steps, as the collections of `gc_off`. No step's
    time has it in it, nor has `fixed_seconds`.
    """

    fixed_seconds: float | None = None
    seconds_per_sample: float | None = None
    intervals: OverheadIntervals = OverheadIntervals(None, None)
    half_batch: float | None = None
    call_seconds: float | None = None
    worst: float | None = None
    points: list[OverheadPoint] = []


class OverheadDocument(msgspec.Struct, kw_only=True):
    """The fixed costs of all cells of a sweep over batch sizes."""

    schema: str = "polybench.overhead/1"
    id: str | None = None
    """By which it is found where it is saved; null in what earlier versions printed."""
    created: str
    polybench: Tool
    argv: list[str]
    model: str
    unit: Unit = "image"
    threads: int
    host: Host
    batch_sizes: list[int] = []
    """That were asked for; empty in what earlier versions printed."""
    studies: list[str] = []
    """IDs of the saved documents of those that were measured, in the order of their batch sizes."""
    engines: list[EngineOverhead]
    warnings: list[str] = []


def overhead_from_json(text: bytes) -> OverheadDocument:
    """Read a saved document; raises msgspec.ValidationError or msgspec.DecodeError with the place."""
    return decoded(text, OverheadDocument)
