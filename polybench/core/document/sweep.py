"""What `polybench sweep` prints: one study at several points, as curves.

Schema history:
    polybench.sweep/1  first version
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from polybench.core.document.circumstances import Host, Published, Tool, Unit
from polybench.core.document.study import decoded
from polybench.core.spec import Workload

SWEEP_ID = "sweep-"
"""How the ID of a sweep begins; what follows is that of its study that was begun first."""


class SweptCell(msgspec.Struct, frozen=True):
    """One cell at one point; numbers are null where it could not be measured, and `reason` says why.

    `speedup` is its samples per second over those of the cell's own first point, `interval95` at the 95 %
    level; `efficiency` that over the ratio of threads, null where threads are not varied.

    `relative_time` and `relative_cost` are the epoch's over those of the sweep's base. Dollars are null where
    the cell's device has no price with as many threads.
    """

    cell: str
    status: str
    reason: str | None = None
    seconds_per_step: float | None = None
    samples_per_second: float | None = None
    speedup: float | None = None
    interval95: tuple[float, float] | None = None
    efficiency: float | None = None
    epoch_seconds: float | None = None
    relative_time: float | None = None
    dollars_per_hour: float | None = None
    """Of all devices that the cell uses."""
    dollars_per_epoch: float | None = None
    relative_cost: float | None = None


class Configuration(msgspec.Struct, frozen=True):
    """A cell at a point."""

    cell: str
    values: dict[str, int]


class PoolSizes(msgspec.Struct, frozen=True):
    """One cell of a matrix: how many threads Julia and BLAS had, by their own account, and a step's time."""

    julia: int
    blas: int
    seconds_per_step: float
    interval95: tuple[float, float] | None


class PoolMatrix(msgspec.Struct, frozen=True):
    """An engine with pools of threads of several sizes, at one point of the other axes."""

    cell: str
    values: dict[str, int]
    sizes: list[PoolSizes]
    best: PoolSizes


class SweepPoint(msgspec.Struct, frozen=True):
    """One study; `id` is that of its saved document."""

    values: dict[str, int]
    id: str
    oversubscribed: bool
    """More threads than the machine has for them."""
    cells: list[SweptCell]
    workload: Workload | None = None
    """What a step is, but for the cells' own precision; null in what earlier versions saved."""


class Curve(msgspec.Struct, frozen=True):
    """One cell over all points: where it is best, and, with one axis, from where on more brings little."""

    cell: str
    best: Annotated[dict[str, int], msgspec.Meta(min_length=1)]
    best_samples_per_second: float
    knee: int | None = None
    """The least value of the only axis that has 90 % of the best throughput."""


class SweepDocument(msgspec.Struct, kw_only=True):
    """A whole sweep."""

    schema: str = "polybench.sweep/1"
    id: str | None = None
    """By which it is found where it is saved; null in what earlier versions printed."""
    created: str
    polybench: Tool
    argv: list[str]
    model: str
    unit: Unit = "image"
    host: Host
    axes: dict[str, list[int]]
    points: list[SweepPoint]
    curves: list[Curve]
    base: Configuration | None = None
    """To which times and costs are relative: the baseline at the first point where there is one."""
    pools: list[PoolMatrix] = []
    """Of engines with two pools of threads, where both were varied."""
    warnings: list[str] = []
    title: str | None = None
    published: list[Published] = []
    """What the author of a study file's sweep printed."""


def sweep_from_json(text: bytes) -> SweepDocument:
    """Read a saved document; raises msgspec.ValidationError or msgspec.DecodeError with the place."""
    return decoded(text, SweepDocument)
