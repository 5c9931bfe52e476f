"""The document of `polybench sweep`: one study at several points, as curves.

Schema history:
    polybench.sweep/1  before the first release
    polybench.sweep/2  fields in standard terms
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from polybench.schema.encoding import decode
from polybench.schema.metadata import Host, InputKind, PublishedResult, ToolVersion
from polybench.schema.options import Workload

SWEEP_ID = "sweep-"
"""Prefix of a sweep's ID; the rest is the ID of its first study."""


class PointResult(msgspec.Struct, frozen=True):
    """A configuration at one point; numbers are null if it could not be measured, with a `reason`.

    `speedup`, with `ci95`, is its items per second relative to its own first point. `efficiency` is `speedup`
    over the ratio of threads; null unless threads vary. `relative_time` and `relative_cost` are an epoch's,
    relative to the sweep's reference. Dollars are null if the device has no price at this number of threads.
    """

    configuration: str
    status: str
    reason: str | None = None
    step_seconds: float | None = None
    items_per_second: float | None = None
    speedup: float | None = None
    ci95: tuple[float, float] | None = None
    efficiency: float | None = None
    epoch_seconds: float | None = None
    relative_time: float | None = None
    dollars_per_hour: float | None = None
    """For all devices that the configuration uses."""
    dollars_per_epoch: float | None = None
    relative_cost: float | None = None


class PointReference(msgspec.Struct, frozen=True):
    """A configuration at a point."""

    configuration: str
    parameters: dict[str, int]


class ThreadPoolSizes(msgspec.Struct, frozen=True):
    """An entry of a grid: the threads that Julia and BLAS report, and the step time."""

    julia: int
    blas: int
    step_seconds: float
    ci95: tuple[float, float] | None


class ThreadPoolGrid(msgspec.Struct, frozen=True):
    """An engine with several sizes of its thread pools, at one point of the other axes."""

    configuration: str
    parameters: dict[str, int]
    sizes: list[ThreadPoolSizes]
    best: ThreadPoolSizes


class SweepPoint(msgspec.Struct, frozen=True):
    """A study; `id` is that of its saved document."""

    parameters: dict[str, int]
    id: str
    oversubscribed: bool
    """True if it uses more threads than the machine has cores for."""
    configurations: list[PointResult]
    workload: Workload | None = None
    """The workload at the study's first precision; a configuration may have another one."""


class Curve(msgspec.Struct, frozen=True):
    """A configuration over all points: its best point and, with one axis, its knee."""

    configuration: str
    best: Annotated[dict[str, int], msgspec.Meta(min_length=1)]
    best_items_per_second: float
    knee: int | None = None
    """The smallest value of the only axis that reaches 90 % of the best throughput."""


class SweepDocument(msgspec.Struct, kw_only=True):
    """A whole sweep."""

    schema: str = "polybench.sweep/2"
    id: str | None = None
    created: str
    polybench: ToolVersion
    argv: list[str]
    model: str
    input_kind: InputKind = "image"
    host: Host
    axes: dict[str, list[int]]
    points: list[SweepPoint]
    curves: list[Curve]
    reference: PointReference | None = None
    """The reference of relative times and costs: the baseline at the first point that has one."""
    thread_pools: list[ThreadPoolGrid] = []
    """For engines with two thread pools, if both sizes vary."""
    warnings: list[str] = []
    title: str | None = None
    published: list[PublishedResult] = []
    """Numbers that the author of a study file's sweep published."""


def sweep_from_json(text: bytes) -> SweepDocument:
    """Read a saved document; raises msgspec.ValidationError or msgspec.DecodeError with the location."""
    return decode(text, SweepDocument)
