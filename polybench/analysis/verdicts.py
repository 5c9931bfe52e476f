"""The verdict on a change of speed, from its interval: the same for `diff`, `versions` and `history`. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping

from polybench.schema import units
from polybench.schema.analyses import Verdict
from polybench.schema.result import Interval, largest_change

DIFFERENCES: tuple[Verdict, ...] = ("faster", "slower")


def judge(
    ratio: float, interval: Interval, tolerance: float, *, is_significant: bool, confirming: float | None = None
) -> tuple[Verdict, str | None]:
    """Return the verdict on a ratio of speeds, and what the interval contains if it cannot tell.

    There is no difference only if the whole interval lies within the tolerance. A second estimate of the ratio, if it
    is `confirming`, must have a difference as well.
    """
    sign = math.copysign(1, math.log(ratio))
    is_beyond = all(sign * math.log(one) > math.log1p(tolerance) for one in (ratio, confirming) if one is not None)
    if is_significant and is_beyond:
        return ("faster" if ratio > 1 else "slower"), None
    if largest_change(interval) <= tolerance:
        return "no difference", None
    return "cannot tell", "between {} and {}".format(*map(_describe, interval))


def meets(verdict: Verdict, ratio: float, interval: Interval | None, conditions: Mapping[str, float]) -> bool | None:
    """Return whether a change meets a condition, such as `slower` by 0.05 of the step time; None if it cannot tell.

    A verdict or an interval without such a change decides.
    """
    if verdict in DIFFERENCES:
        return change(ratio) >= conditions.get(verdict, math.inf)
    if verdict == "no difference":
        return False
    if verdict == "not comparable" or interval is None:
        return None
    slower, faster = (1 / bound - 1 for bound in interval)
    excluded = slower < conditions.get("slower", math.inf) and -faster < conditions.get("faster", math.inf)
    return False if excluded else None


def change(ratio: float) -> float:
    """Return the relative change of the step time."""
    return abs(1 / ratio - 1)


def _describe(ratio: float) -> str:
    """0.5 -> "2 times as long", 0.8 -> "25% slower", 1.25 -> "20% faster", in the time of a step."""
    if ratio <= 0.5:
        return f"{units.format_number(1 / ratio)} times as long"
    return f"{100 * change(ratio):.2g}% {'faster' if ratio > 1 else 'slower'}"
