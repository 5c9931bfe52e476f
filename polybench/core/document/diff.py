"""What `polybench diff` says: the rows of two studies beside each other, each with a verdict.

Schema history:
    polybench.diff/1  first version
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Verdict = Literal["faster", "slower", "no difference", "not comparable"]
Changed = dict[str, tuple[Any, Any]]
"""What differs: its name, and both values; null is "not there"."""


class Side(msgspec.Struct, frozen=True):
    """One of the two studies."""

    id: str
    created: str
    title: str | None
    hostname: str
    polybench: str


class DiffRow(msgspec.Struct, frozen=True, kw_only=True):
    """One cell in both studies: `ratio` is the speed in B over that in A, above 1 is faster.

    Seconds of a typical step are null where there are none, the ratio where the two did not do the same work,
    its interval (at the 95 % level, over processes) where one of them had a single process.
    """

    cell: str
    engine: str
    device: str
    verdict: Verdict
    reason: str | None = None
    """Why the two are not comparable."""
    seconds: tuple[float | None, float | None] = (None, None)
    ratio: float | None = None
    interval95: tuple[float, float] | None = None
    false_discovery_rate: float | None = None
    """The least share of false verdicts, of all that are given, at which this one would be given."""
    machine: float | None = None
    """The ratio by which all other engines on this device, in which nothing changed, moved at least: what is
    not beyond it may be the machine's. 1 where they moved both ways; null where there is none."""
    beyond: float | None = None
    """The ratio that is left once the machine had its part, which the verdict is about; null where there is
    no verdict."""
    changed: Changed = {}


class DiffDocument(msgspec.Struct, kw_only=True):
    """Two studies compared, A with B."""

    schema: str = "polybench.diff/1"
    a: Side
    b: Side
    tolerance: float
    """A change of at most this fraction is no difference."""
    changed: Changed
    """What differs for all rows."""
    rows: list[DiffRow]
    warnings: list[str] = []
