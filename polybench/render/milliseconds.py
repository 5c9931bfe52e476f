"""Times of the parts of a step, in milliseconds with the same decimals in a column."""

from __future__ import annotations

from typing import NamedTuple

from polybench.schema import units
from polybench.schema.result import Interval

_SHORT_STEP = 1e-3
_LONG_STEP = 0.1


class Milliseconds(NamedTuple):
    """Format of a configuration's times; shorter ones than `smallest` milliseconds are noise."""

    decimals: int
    smallest: float

    @classmethod
    def for_step(cls, seconds: float) -> Milliseconds:
        """Choose the decimals for the parts of a step that takes this long."""
        if seconds < _SHORT_STEP:
            return cls(3, 0.005)
        return cls(2 if seconds < _LONG_STEP else 1, 0.05)

    @property
    def noise(self) -> str:
        """Text in place of a time that is too short."""
        return f"< {self.smallest:g}"

    def is_noise(self, seconds: float) -> bool:
        """Return True if a part is too short to be measured, or the difference of two times and negative."""
        return 1e3 * seconds < self.smallest

    def format(self, seconds: float) -> str:
        """0.0137 -> "13.70", also for negative times."""
        return f"{1e3 * seconds:,.{self.decimals}f}"

    def format_part(self, seconds: float, interval: Interval | None = None, *, margin: bool = False) -> str:
        """Format a part, which cannot be negative; with `margin` as "13.70 ±0.12", half of the interval.

        A part whose interval is too wide has no result.
        """
        if self.is_noise(seconds):
            return self.noise
        if units.is_wide(seconds, interval):
            return units.NO_RESULT
        return self.with_margin(seconds, interval) if margin else self.format(seconds)

    def with_margin(self, seconds: float, interval: Interval | None) -> str:
        """Format a time with half of its interval, which is never 0."""
        if interval is None:
            return self.format(seconds)
        margin = max((interval[1] - interval[0]) / 2, 10**-self.decimals / 1e3)
        return f"{self.format(seconds)} ±{self.format(margin)}"
