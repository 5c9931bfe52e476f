"""The document of `polybench history`: step times of each configuration over time, with change points.

Schema history:
    polybench.history/1  before the first release
    polybench.history/2  fields in standard terms
"""

from __future__ import annotations

import msgspec

from polybench.schema.diff import Changed


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A study in a series: seconds of a typical step, with an interval over processes (null for one process).

    `segment_level` is the level of the segment, between two change points, that contains this point.
    """

    study: str
    created: str
    step_seconds: float
    ci95: tuple[float, float] | None
    segment_level: float
    versions: dict[str, str]
    changed: Changed = {}
    """Versions that differ from those of the previous point."""


class ChangePoint(msgspec.Struct, frozen=True, kw_only=True):
    """A change from one level to another. `ratio` is the speed after it over the speed before; > 1 is
    faster."""

    study: str
    """The first study at the new level."""
    previous_study: str
    """The last study at the old level."""
    created: str
    ratio: float
    changed: Changed
    """Versions that differ between these two studies."""
    dismissed: bool


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration of one workload on one machine."""

    configuration: str
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
    distinguishing_settings: str
    """Settings that tell this series from others with equal fields above; empty if it is the only one."""
    points: list[Point]
    """In order of time."""
    change_points: list[ChangePoint]
    excluded: int = 0
    """Number of earlier studies beyond the maximum length of a series."""


class HistoryDocument(msgspec.Struct, kw_only=True):
    """All series that match the request."""

    schema: str = "polybench.history/2"
    tolerance: float
    """Largest change, as a fraction, that does not count as a change point."""
    series: list[Series]
