"""The document of `polybench explain`: differences in step time, broken down, and statements with evidence.

All times are in seconds. Null means "not measured" or "no source", never 0.

Schema history:
    polybench.explanation/1  before the first release
    polybench.explanation/2  fields in standard terms
"""

from __future__ import annotations

from typing import Literal

import msgspec

from polybench.schema.metadata import Host, Settings, ToolVersion

Interval = tuple[float, float]


class Statement(msgspec.Struct, frozen=True, kw_only=True):
    """A sentence, and the number that supports it."""

    text: str
    evidence: str
    """A column of the study's table, or a field of another saved document."""
    seconds: float | None = None
    """The size of the effect, per step unless the text says otherwise."""
    command: str | None = None
    """The command that measures it, if it was not measured."""


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a difference: `difference_seconds` is `seconds` - `baseline_seconds`, with null as 0.

    `ci95` is the interval of the difference, over processes that ran side by side; null without such
    processes.
    """

    name: str
    kind: str
    """For a layer its operation, such as `input gradient`; otherwise the kind of cost."""
    difference_seconds: float
    ci95: Interval | None = None
    seconds: float | None = None
    baseline_seconds: float | None = None


class Breakdown(msgspec.Struct, kw_only=True):
    """A difference broken down: `components` and `unattributed` add up to `difference_seconds`.

    `layers`: the operations of a step, each timed alone. `batch size`: the fixed overhead of a step, and the
    cost of its items. `start`: the difference of the cold starts, not of a step. `unattributed` names what no
    component explains; nothing is rescaled. The largest components come first.
    """

    kind: Literal["layers", "batch size", "start"]
    difference_seconds: float
    components: list[Component]
    unattributed: list[Component] = []
    sources: list[str] = []
    """IDs of the other documents that were used."""

    @property
    def explained_fraction(self) -> float | None:
        """Fraction of the difference that the components explain; None for a difference of 0."""
        explained = sum(component.difference_seconds for component in self.components)
        return explained / self.difference_seconds if self.difference_seconds else None


class Comparison(msgspec.Struct, kw_only=True):
    """A configuration compared with the baseline; `difference_seconds` is positive if its step is longer."""

    configuration: str
    baseline: str
    seconds: float
    baseline_seconds: float
    difference_seconds: float
    ci95: Interval | None
    speedup: float
    speedup_ci95: Interval | None
    inconclusive_reason: str | None = None
    """Reason why the difference is inconclusive; null if it is not."""
    breakdowns: list[Breakdown] = []
    statements: list[Statement] = []

    def breakdown(self, kind: str) -> Breakdown | None:
        """The breakdown of this kind, or None."""
        return next((breakdown for breakdown in self.breakdowns if breakdown.kind == kind), None)


class ExplanationDocument(msgspec.Struct, kw_only=True):
    """All conclusions from saved documents about the differences in one study."""

    schema: str = "polybench.explanation/2"
    study: str
    """ID of the study."""
    created: str
    """Time of the study."""
    polybench: ToolVersion
    settings: Settings
    host: Host
    comparisons: list[Comparison]
    """Inconclusive ones first."""
    recommendations: list[Statement] = []
    """Settings that were measured to be faster, the largest gain first."""
    suggested_measurements: list[Statement] = []
    """Measurements that are missing, with their commands."""
    excluded: list[Statement] = []
    """Configurations that cannot be compared."""

    def all_statements(self) -> list[Statement]:
        """Every statement, in reading order."""
        compared = [statement for comparison in self.comparisons for statement in comparison.statements]
        return [*compared, *self.recommendations, *self.suggested_measurements, *self.excluded]
