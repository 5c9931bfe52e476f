"""Seconds, bytes, counts and ratios as text for people, with three significant digits."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_MINUTE = 60.0
_DAY = 86400.0
_AGES = (
    (365.25 * _DAY, "year"),
    (30.44 * _DAY, "month"),
    (_DAY, "day"),
    (3600.0, "hour"),
    (_MINUTE, "minute"),
)
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


def seconds(value: float) -> str:
    """0.0124 -> "12.4 ms"; what is below a picosecond is what arithmetic left of 0."""
    return _scaled(value, _SECONDS) if abs(value) >= 1e-12 else "0 s"


def signed_seconds(value: float) -> str:
    """0.0124 -> "+12.4 ms": of a difference."""
    text = seconds(value)
    return f"+{text}" if value > 0 and text != "0 s" else text


def rough_seconds(value: float) -> str:
    """For an estimate, no more digits than it has: "8 s", "40 s", "3 minutes", "2.5 hours"."""
    if value < 90:
        return f"{value:.0f} s" if value < 10 else f"{round(value, -1):.0f} s"
    if value < 5400:
        return f"{value / 60:.0f} minutes"
    return f"{value / 3600:.1f} hours" if value < 36_000 else f"{value / 3600:.0f} hours"


def age(value: float) -> str:
    """For how long ago something was: "now", "5 minutes", "3 hours", "12 days", "2 years"."""
    for size, noun in _AGES:
        if value >= size:
            return plural(int(value // size), noun)
    return "now" if value > -_MINUTE else "in the future"


def nbytes(value: float) -> str:
    """54_840_000 -> "52.3 MiB"."""
    return _scaled(value, _BYTES)


def count(value: float) -> str:
    """9870.2 -> "9,870"; whole numbers keep all their digits."""
    return f"{value:,}" if isinstance(value, int) else number(value)


def ratio(value: float) -> str:
    """1.931 -> "1.93x"."""
    return f"{number(value)}x"


def percent(fraction: float) -> str:
    """0.0321 -> "3.2%"; two digits are enough for a precision or a share."""
    return f"{number(fraction * 100, digits=2)}%"


def scientific(value: float) -> str:
    """0.0088 -> "8.8e-3"; for errors, which span many powers of ten."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}" if value else "0"


def number(value: float, digits: int = 3) -> str:
    """At least `digits` significant digits, all digits before the point: 1.93, 16.5, 9,870."""
    return f"{value:,.{_decimals(value, digits)}f}" if value else "0"


def seconds_within(value: float, interval: tuple[float, float] | None) -> str:
    """0.0223 and (0.022, 0.0227) -> "22.3 ms ±1.6%", of half the interval's width; without one the time."""
    if interval is None:
        return seconds(value)
    low, high = interval
    return f"{seconds(value)} ±{percent((high - low) / 2 / value)}"


def with_interval(value: float, interval: tuple[float, float] | None) -> str:
    """1.93 and (1.9, 1.97) -> "1.93 (1.90 to 1.97)", all with the same decimals."""
    if interval is None:
        return number(value)
    decimals = min(_decimals(value, digits=3), 2 if value >= 0.1 else 6)
    # A bound that is not 1 must not read as 1: that is the verdict.
    while decimals < 4 and any(bound != 1 and round(bound, decimals) == 1 for bound in interval):
        decimals += 1
    low, high = (f"{bound:,.{decimals}f}" for bound in interval)
    return f"{value:,.{decimals}f} ({low} to {high})"


def difference(value: float, interval: tuple[float, float]) -> str:
    """-0.0031 and (-0.011, 0.005) -> "-0.003 (-0.011 to 0.005)": of shares, such as accuracies."""
    decimals = 3
    # A bound that is not 0 must not read as 0: that is the verdict.
    while decimals < 5 and any(bound and not round(bound, decimals) for bound in interval):
        decimals += 1
    low, high = (f"{bound:.{decimals}f}" for bound in interval)
    return f"{value:.{decimals}f} ({low} to {high})"


def with_spread(value: float, std: float | None) -> str:
    """0.5123 and 0.0061 -> "0.512 ±0.006": a mean share and its standard deviation, where there is one."""
    return f"{value:.3f}" + ("" if std is None else f" ±{std:.3f}")


def point(values: Mapping[str, int]) -> str:
    """Of a sweep: `batch size 8, threads 2`."""
    return ", ".join(f"{axis.replace('_', ' ')} {count(value)}" for axis, value in values.items())


def varied(axes: Mapping[str, Sequence[int]]) -> str:
    """Axes of a sweep with their values: `batch size 1, 8; threads 1, 2`."""
    return "; ".join(
        f"{axis.replace('_', ' ')} {', '.join(map(str, values))}" for axis, values in axes.items()
    )


def of_inputs(text: str, unit: str) -> str:
    """What is said of images, said of what a network takes: sequences/s for images/s."""
    return re.sub(r"\bimage(?=s?\b)", unit, text)


def plural(number: int, noun: str) -> str:
    """1 and "seed" -> "1 seed"; 5 -> "5 seeds"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _decimals(value: float, digits: int) -> int:
    # The exponent after rounding: 9.996 has three digits as 10.0, not as 10.00.
    exponent = int(f"{value:.{digits - 1}e}".split("e")[1])
    return max(digits - 1 - exponent, 0)


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    # Rounded before it is compared, so that 999.9 us becomes 1.00 ms, not 1,000 us.
    fitting = (unit for unit in units if float(f"{abs(value) / unit[0]:.2e}") >= 1)
    scale, name = next(fitting, units[-1])
    return f"{count(value) if scale == 1 else number(value / scale)} {name}"
