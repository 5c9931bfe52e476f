"""`Metric`: the description of a column of the table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from polybench.schema.result import Result

Interval = tuple[float, float]


def _no_interval(_: Result) -> Interval | None:
    return None


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """A number or word of a result.

    Attributes:
        name: key for --columns and CSV.
        title: heading of the column.
        unit: SI unit of `value`; "" for a plain number, None for words.
        better: direction of improvement; None for a neutral metric.
        value: None if nothing could measure it.
        format_value: text of a value.
        format_result: text of a whole result, if the value alone is not enough.
        interval: 95 % interval, in the unit of `value`.
        description: explanation for lists of all metrics, beyond the name.
        unavailable_hint: condition under which the metric has a value.
    """

    name: str
    title: str
    unit: str | None
    better: Literal["lower", "higher"] | None
    value: Callable[[Result], float | str | None]
    format_value: Callable[[Any], str] = str
    format_result: Callable[[Result], str] | None = None
    interval: Callable[[Result], Interval | None] = _no_interval
    description: str = ""
    unavailable_hint: str = "not measured on this machine; see `polybench doctor`"

    @property
    def has_interval(self) -> bool:
        """True if the metric has intervals; the interval of a single result may still be missing."""
        return self.interval is not _no_interval

    def text(self, result: Result) -> str:
        """Format the table's text for a result; "" without a value."""
        if self.format_result is not None:
            return self.format_result(result)
        value = self.value(result)
        return "" if value is None else self.format_value(value)
