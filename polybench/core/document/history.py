"""What `polybench history` says: each cell over time, and where its step time stepped.

Schema history:
    polybench.history/1  first version
"""

from __future__ import annotations

import msgspec

from polybench.core.document.diff import Changed


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """One study: seconds of a typical step, with the interval over processes, null with a single one.

    `level` is that of the piece of the line that the point belongs to.
    """

    study: str
    created: str
    seconds: float
    interval95: tuple[float, float] | None
    level: float
    versions: dict[str, str]
    changed: Changed = {}
    """Versions that are not those of the point before."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """From one level to another: `ratio` is the speed after over that before, above 1 is faster."""

    study: str
    """The first one at the new level."""
    before: str
    """The last one at the old level."""
    created: str
    ratio: float
    changed: Changed
    """Versions of the former that are not those of the latter."""
    acknowledged: bool


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One cell of one workload on one machine."""

    cell: str
    engine: str
    variant: str | None
    device: str
    model: str
    dataset: str
    batch_size: int
    precision: str
    threads: int
    hostname: str
    cpu: str
    other: str
    """What tells it from others of this list of which the fields above say the same; empty where none is."""
    points: list[Point]
    """The oldest first."""
    steps: list[Step]
    left_out: int = 0
    """Earlier studies, beyond the most that are looked at."""


class HistoryDocument(msgspec.Struct, kw_only=True):
    """All series of the studies that were asked for."""

    schema: str = "polybench.history/1"
    tolerance: float
    """A step of at most this fraction is none."""
    series: list[Series]
