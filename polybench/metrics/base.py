"""What a metric is: a column of the table, as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from polybench.core.document.result import Result

Interval = tuple[float, float]


def _no_interval(_: Result) -> Interval | None:
    return None


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One number, or word, that a result has.

    `name` is the key for --columns and CSV, `title` heads the column. `unit` is the SI unit of `value` (""
    for a plain number, None for words). `value` is None where nothing could measure it. `show` makes text
    of a value; `in_words` of a whole result, where the value alone does not say enough. `interval` is at the
    95 % level, in the same unit. `note` is what the name does not say, for lists of all metrics. `needs` is
    what gives it a value where it has none.
    """

    name: str
    title: str
    unit: str | None
    better: Literal["lower", "higher"] | None
    value: Callable[[Result], float | str | None]
    show: Callable[[Any], str] = str
    in_words: Callable[[Result], str] | None = None
    interval: Callable[[Result], Interval | None] = _no_interval
    note: str = ""
    needs: str = "not measured here; see `polybench doctor`"

    @property
    def has_interval(self) -> bool:
        """Whether it can have one; that of a result may still be missing."""
        return self.interval is not _no_interval

    def text(self, result: Result) -> str:
        """What the table shows; "" where there is no value."""
        if self.in_words is not None:
            return self.in_words(result)
        value = self.value(result)
        return "" if value is None else self.show(value)
