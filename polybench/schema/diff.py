"""The document of `polybench diff`: the rows of two studies side by side, each with a verdict.

Schema history:
    polybench.diff/1  before the first release
    polybench.diff/2  fields in standard terms
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

Verdict = Literal["faster", "slower", "no difference", "not comparable"]
Changed = dict[str, tuple[Any, Any]]
"""Name of each difference, with both values; null means absent."""


class StudyInfo(msgspec.Struct, frozen=True):
    """A study in a comparison of two."""

    id: str
    created: str
    title: str | None
    hostname: str
    polybench: str


class DiffRow(msgspec.Struct, frozen=True, kw_only=True):
    """A configuration in both studies. `ratio` is the speed in B over the speed in A; above 1 is faster.

    `step_seconds` are those of a typical step in A and in B, null if not measured. `ratio` is null if the two
    did different work. `ci95` is over processes, and null if one of the studies had a single process.
    """

    configuration: str
    engine: str
    device: str
    verdict: Verdict
    reason: str | None = None
    """Reason why the two are not comparable."""
    step_seconds: tuple[float | None, float | None] = (None, None)
    ratio: float | None = None
    ci95: tuple[float, float] | None = None
    q_value: float | None = None
    """The smallest false discovery rate, over all verdicts of this diff, at which this one is significant."""
    machine_drift_ratio: float | None = None
    """The smallest change of the other, unchanged engines on this device; the machine may have caused as
    much. 1 if these engines moved in both directions; null without such engines."""
    corrected_ratio: float | None = None
    """The ratio without the machine's drift, which the verdict refers to; null without a verdict."""
    changed: Changed = {}


class DiffDocument(msgspec.Struct, kw_only=True):
    """A comparison of study A with study B."""

    schema: str = "polybench.diff/2"
    a: StudyInfo
    b: StudyInfo
    tolerance: float
    """Largest change, as a fraction, that does not count as a difference."""
    changed: Changed
    """Differences that apply to all rows."""
    rows: list[DiffRow]
    warnings: list[str] = []
