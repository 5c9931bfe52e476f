"""Seconds, bytes, counts and ratios as text for people, with three significant digits."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

NO_RESULT = "(no result)"
"""Text in place of a ratio or a step time whose interval is too wide."""

_SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_MAX_SPAN = 4.0
"""Ratio of an interval's bounds. A wider one that contains 1 excludes neither twice nor half the speed."""

_MINUTE = 60.0
_DAY = 86400.0
_AGES = ((365.25 * _DAY, "year"), (30.44 * _DAY, "month"), (_DAY, "day"), (3600.0, "hour"), (_MINUTE, "minute"))
_BYTES = ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))


def format_seconds(value: float) -> str:
    """0.0124 -> "12.4 ms". Less than a picosecond is rounding of 0."""
    return _scaled(value, _SECONDS) if abs(value) >= 1e-12 else "0 s"


def format_part(part: float, whole: float) -> str:
    """0.0664 and 0.158 -> "66.4 of 158 ms"."""
    first, second = format_seconds(part), format_seconds(whole)
    number, unit = first.split(" ")
    return f"{number if second.endswith(f' {unit}') else first} of {second}"


def format_signed_seconds(value: float) -> str:
    """0.0124 -> "+12.4 ms", for differences."""
    text = format_seconds(value)
    return f"+{text}" if value > 0 and text != "0 s" else text


def format_rough_seconds(value: float) -> str:
    """Format an estimate with the digits that it deserves: "8 s", "40 s", "3 minutes", "2.5 hours"."""
    if value < 90:
        return f"{value:.0f} s" if value < 10 else f"{round(value, -1):.0f} s"
    if value < 5400:
        return f"{value / 60:.0f} minutes"
    return f"{value / 3600:.1f} hours" if value < 36_000 else f"{value / 3600:.0f} hours"


def format_age(value: float) -> str:
    """Format an age: "now", "5 minutes", "3 hours", "12 days", "2 years"."""
    for size, noun in _AGES:
        if value >= size:
            return plural(int(value // size), noun)
    return "now" if value > -_MINUTE else "in the future"


def format_bytes(value: float) -> str:
    """54_840_000 -> "52.3 MiB"."""
    return _scaled(value, _BYTES)


def format_bytes_with_ci(value: float, interval: tuple[float, float] | None) -> str:
    """102_400 and (101_000, 103_800) -> "100 KiB (98.6 KiB to 101 KiB)"; only the bytes without an interval."""
    bounds = " to ".join(map(format_bytes, interval)) if interval else ""
    return format_bytes(value) + (f" ({bounds})" if bounds else "")


def format_count(value: float) -> str:
    """9870.2 -> "9,870"; integers keep all of their digits."""
    return f"{value:,}" if isinstance(value, int) else format_number(value)


def format_ratio(value: float) -> str:
    """1.931 -> "1.93x"."""
    return f"{format_number(value)}x"


def format_percent(fraction: float) -> str:
    """0.0321 -> "3.2%"; two digits are enough for a margin of error or a fraction."""
    return f"{format_number(fraction * 100, digits=2)}%"


def format_scientific(value: float) -> str:
    """0.0088 -> "8.8e-3", for errors, which span many powers of ten."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}" if value else "0"


def format_number(value: float, digits: int = 3) -> str:
    """Format at least `digits` significant digits, and all digits before the point: 1.93, 16.5, 9,870."""
    return f"{value:,.{_decimals(value, digits)}f}" if value else "0"


def format_seconds_with_margin(value: float, interval: tuple[float, float] | None) -> str:
    """0.0223 and (0.022, 0.0227) -> "22.3 ms ±1.6%", half the width; only the time without an interval."""
    return format_seconds(value) + _margin(value, interval)


def format_seconds_with_ci(value: float, interval: tuple[float, float] | None) -> str:
    """0.0223 and (0.022, 0.0227) -> "22.3 ms (22.0 ms to 22.7 ms)"; only the time without an interval.

    An interval wider than twice the time is "±>100%".
    """
    if interval and interval[1] - interval[0] > 2 * abs(value):
        return f"{format_seconds(value)} {format_margin(math.inf)}"
    return format_seconds(value) + (f" ({format_range(interval)})" if interval else "")


def format_range(interval: tuple[float, float]) -> str:
    """(0.022, 0.0227) -> "22.0 ms to 22.7 ms"; negative bounds of positive times become 0."""
    return " to ".join(format_seconds(max(0.0, bound)) for bound in interval)


def format_with_margin(value: float, interval: tuple[float, float] | None) -> str:
    """0.746 and (0.72, 0.772) -> "0.746 ±3.5%", half the width; only the number without an interval."""
    return format_number(value) + _margin(value, interval)


def format_margin(fraction: float) -> str:
    """0.0321 -> "±3.2%"; above 100 %, the number means nothing."""
    return "±>100%" if fraction > 1 else f"±{format_percent(fraction)}"


def format_with_ci(value: float, interval: tuple[float, float] | None) -> str:
    """0.277 and (0.274, 0.28) -> "0.277 (0.274 to 0.280)": all with the decimals that the interval supports.

    A ratio whose interval is too wide is "(no result)".
    """
    if interval is None:
        return format_number(value)
    if describe_too_wide(interval):
        return NO_RESULT
    decimals = _supported_decimals(value, interval)
    # A bound other than 1 must not be shown as 1, because it decides the verdict.
    while decimals < 4 and any(bound != 1 and round(bound, decimals) == 1 for bound in interval):
        decimals += 1
    low, high = (f"{bound:,.{decimals}f}" for bound in interval)
    return f"{value:,.{decimals}f} ({low} to {high})"


def _supported_decimals(value: float, interval: tuple[float, float]) -> int:
    """Return two decimals or three digits, and more if half the interval's width supports them."""
    fewest = min(_decimals(value, digits=3), 2 if value >= 0.1 else 6)
    half_width = (interval[1] - interval[0]) / 2
    if not 1e-9 * value < half_width < math.inf:
        return fewest
    return max(fewest, min(-math.floor(math.log10(half_width)), _decimals(value, digits=4)))


def is_wide(value: float, interval: tuple[float, float] | None) -> bool:
    """Return True if the interval reaches from below half of the value to above twice."""
    return interval is not None and 2 * interval[0] < value < interval[1] / 2


def describe_too_wide(interval: tuple[float, float] | None) -> str | None:
    """Return why a ratio's interval supports no conclusion: it is wide and contains 1; None if it does."""
    if interval and interval[0] <= 1 <= interval[1] and interval[1] > _MAX_SPAN * interval[0]:
        return f"the interval is too wide: {format_number(interval[0])} to {format_number(interval[1])}"
    return None


def format_difference(value: float, interval: tuple[float, float]) -> str:
    """-0.0031 and (-0.011, 0.005) -> "-0.003 (-0.011 to 0.005)", for fractions such as accuracies."""
    decimals = 3
    # A bound other than 0 must not be shown as 0, because it decides the verdict.
    while decimals < 5 and any(bound and not round(bound, decimals) for bound in interval):
        decimals += 1
    low, high = (f"{bound:.{decimals}f}" for bound in interval)
    return f"{value:.{decimals}f} ({low} to {high})"


def format_with_std(value: float, std: float | None) -> str:
    """0.5123 and 0.0061 -> "0.512 ±0.006": a mean fraction and its standard deviation, if there is one."""
    return f"{value:.3f}" + ("" if std is None else f" ±{std:.3f}")


def format_point(values: Mapping[str, int]) -> str:
    """Format a point of a sweep: `batch size 8, threads 2`."""
    return ", ".join(f"{axis.replace('_', ' ')} {format_axis_value(axis, value)}" for axis, value in values.items())


def format_model(model: str, pass_: str) -> str:
    """Format a network for titles: `lenet`, or `lenet, forward pass`."""
    return model if pass_ == "training" else f"{model}, {pass_} pass"


def format_axis_value(axis: str, value: int) -> str:
    """Format a value of an axis: 128 -> "128", augment 1 -> "on"."""
    return ("off", "on")[value] if axis == "augment" else format_count(value)


def format_axes(axes: Mapping[str, Sequence[int]]) -> str:
    """Format the axes of a sweep with their values: `batch size 1, 8; threads 1, 2`."""
    return "; ".join(f"{axis.replace('_', ' ')} {', '.join(map(str, values))}" for axis, values in axes.items())


def with_input_kind(text: str, input_kind: str) -> str:
    """Replace images by the network's kind of input: images/s -> sequences/s."""
    return re.sub(r"\bimage(?=s?\b)", input_kind, text)


def plural(number: int, noun: str) -> str:
    """1 and "seed" -> "1 seed"; 5 -> "5 seeds"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _margin(value: float, interval: tuple[float, float] | None) -> str:
    if interval is None:
        return ""
    return f" {format_margin((interval[1] - interval[0]) / 2 / value)}"


def _decimals(value: float, digits: int) -> int:
    if not math.isfinite(value):  # a ratio to almost nothing
        return 0
    # Uses the exponent after rounding: 9.996 has three digits as 10.0, not as 10.00.
    exponent = int(f"{value:.{digits - 1}e}".split("e")[1])
    return max(digits - 1 - exponent, 0)


def _scaled(value: float, units: tuple[tuple[float, str], ...]) -> str:
    # Rounds before comparing, so that 999.9 us becomes 1.00 ms, not 1,000 us.
    fitting = (unit for unit in units if float(f"{abs(value) / unit[0]:.2e}") >= 1)
    scale, name = next(fitting, units[-1])
    return f"{format_count(value) if scale == 1 else format_number(value / scale)} {name}"
