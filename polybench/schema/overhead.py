"""The document of `polybench overhead`: the fixed overhead of a step, and the cost of an item.

Schema history:
    polybench.overhead/1  before the first release
    polybench.overhead/2  fields in standard terms
"""

from __future__ import annotations

import msgspec

from polybench.schema.configuration_status import ConfigurationStatus
from polybench.schema.encoding import decode
from polybench.schema.metadata import Host, InputKind, ToolVersion

OVERHEAD_ID = "overhead-"
"""Prefix of an overhead's ID; the rest is the ID of its first study."""

Interval = tuple[float, float]


class OverheadPoint(msgspec.Struct, frozen=True):
    """The step time at one batch size."""

    batch_size: int
    step_seconds: float
    ci95: Interval | None


class OverheadIntervals(msgspec.Struct, frozen=True):
    """95 % intervals over processes; null for one process."""

    overhead_seconds: Interval | None
    seconds_per_item: Interval | None


class ConfigurationOverhead(ConfigurationStatus, kw_only=True):
    """A configuration: step time = overhead_seconds + seconds_per_item x batch size.

    At `batch_size_at_50pct_overhead`, the overhead is half of a step. `max_relative_residual` is the largest
    deviation of a point from the line, as a fraction; if it is large, the cost is not linear.
    `python_call_overhead_seconds` is the extra time of a call from Python, the median over batch sizes: for
    Flux the bridge to Julia, and the collections that `gc_off` runs between steps. It is included neither in
    the step times nor in `overhead_seconds`.
    """

    overhead_seconds: float | None = None
    seconds_per_item: float | None = None
    ci95: OverheadIntervals = OverheadIntervals(None, None)
    batch_size_at_50pct_overhead: float | None = None
    python_call_overhead_seconds: float | None = None
    max_relative_residual: float | None = None
    points: list[OverheadPoint] = []


class OverheadDocument(msgspec.Struct, kw_only=True):
    """The overheads of all configurations of a sweep over batch sizes."""

    schema: str = "polybench.overhead/2"
    id: str | None = None
    created: str
    polybench: ToolVersion
    argv: list[str]
    model: str
    input_kind: InputKind = "image"
    threads: int
    host: Host
    batch_sizes: list[int] = []
    """As requested."""
    studies: list[str] = []
    """IDs of the saved studies, in the order of their batch sizes."""
    configurations: list[ConfigurationOverhead]
    warnings: list[str] = []


def overhead_from_json(text: bytes) -> OverheadDocument:
    """Read a saved document; raises msgspec.ValidationError or msgspec.DecodeError with the location."""
    return decode(text, OverheadDocument)
