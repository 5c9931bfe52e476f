"""What a metric is: a column of the table, as data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from polybench.core.results import Result

Interval = tuple[float, float]


def _no_interval(_: Result) -> Interval | None:
    return None


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One number, or word, that a result has.

    `name` is the key for --columns and CSV, `title` heads the column. `unit` is the SI unit of `value` (""
    for a plain number, None for words). `value` is None and `text` is "" where nothing could measure it.
    `interval` is at the 95 % level, in the same unit.
    """

    name: str
    title: str
    unit: str | None
    better: Literal["lower", "higher"] | None
    value: Callable[[Result], float | str | None]
    text: Callable[[Result], str]
    interval: Callable[[Result], Interval | None] = _no_interval
