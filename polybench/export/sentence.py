"""The closing sentences: each comparison in words, with a verdict only where there is one."""

from __future__ import annotations

from polybench.core import units
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.document.times import DeviceSpeedup, Relative
from polybench.core.document.training import AccuracyDifference
from polybench.core.statistics import Ratio, differs


def sentences(study: StudyDocument) -> list[str]:
    """One for every ranked cell but the baseline, one for every engine on a device besides the CPU, and one
    for every accuracy beside the baseline's.
    """
    by_cell = {result.cell: result for result in study.results}
    compared = [
        _sentence(by_cell[result.relative.baseline], result, result.relative)
        for result in study.results
        if result.ranked
        and result.relative
        and result.relative.baseline != result.cell
        and result.relative.baseline in by_cell
    ]
    on_devices = [
        _device_sentence(result, result.device_speedup)
        for result in study.results
        if result.ranked and result.device_speedup
    ]
    return [
        *compared,
        *on_devices,
        *(
            _accuracy_sentence(by_cell[found.baseline], result, found)
            for result in study.results
            if result.ranked and (found := result.accuracy_difference) and found.baseline in by_cell
        ),
    ]


def _device_sentence(result: Result, found: DeviceSpeedup) -> str:
    """As the published comparisons of CPU and GPU say it: "97.8 times; 99.0 % less time"."""
    times = units.with_interval(found.speedup, found.interval95)
    verdict = _verdict(found)
    if verdict is None:
        return f"{result.cell} ran {times} times as fast as {found.cpu_cell} ({_why_not(found)}; no verdict)."
    if not verdict:
        return f"no difference shown between {result.cell} and {found.cpu_cell}: ratio {times}."
    saved = 1 - 1 / found.speedup
    less = f"{units.number(100 * abs(saved))}% {'less' if saved >= 0 else 'more'} time"
    return f"{result.cell} is {times} times as fast as {found.cpu_cell}: {less}."


def _sentence(baseline: Result, other: Result, relative: Relative) -> str:
    ratio = Ratio(relative.speedup, relative.interval95, relative.scope)
    verdict = _verdict(relative)
    if verdict is False:
        one, two = _names(other, baseline)
        return f"no difference shown between {one} and {two}: ratio {_number(ratio)}."
    faster, slower = _names(other, baseline)
    if ratio.value < 1:
        faster, slower = _names(baseline, other)
        ratio = _inverse(ratio)
    if verdict is None:
        why_not = _why_not(relative)
        return f"{faster} ran {_number(ratio)} times as fast as {slower} ({why_not}; no verdict)."
    return f"{faster} is {_number(ratio)} times as fast as {slower}."


def _verdict(found: Relative | DeviceSpeedup) -> bool | None:
    if found.no_verdict is not None:
        return None
    return differs(Ratio(found.speedup, found.interval95, found.scope))


def _why_not(found: Relative | DeviceSpeedup) -> str:
    return found.no_verdict or "within one run"


def _accuracy_sentence(baseline: Result, other: Result, found: AccuracyDifference) -> str:
    """Both accuracies with their spread over seeds, and whether that spread explains the difference."""
    one, two = _names(other, baseline)
    after = f"after {units.plural(found.epochs, 'epoch')}"
    both = " and ".join(
        units.with_spread(result.accuracy or 0.0, result.accuracy_std) for result in (other, baseline)
    )
    if found.interval95 is None:
        return f"accuracy of {one} and {two} {after}: {both} (one seed; no verdict)."
    both = f"{both} over {units.plural(found.seeds, 'seed')}"
    low, high = found.interval95
    if low <= 0 <= high:
        interval = units.difference(found.value, found.interval95)
        return f"no difference of accuracy shown between {one} and {two} {after}: {both}, {interval}."
    if found.value < 0:
        by, where = units.difference(-found.value, (-high, -low)), "below"
    else:
        by, where = units.difference(found.value, found.interval95), "above"
    return f"accuracy of {one} is {by} {where} that of {two} {after}: {both}."


def _names(one: Result, two: Result) -> tuple[str, str]:
    """With devices; where it is the same for both, only the second says it."""
    first = _name(one) if one.device == two.device else f"{_name(one)} on {one.device}"
    return first, f"{_name(two)} on {two.device}"


def _name(result: Result) -> str:
    return result.cell.replace(f"/{result.device}", "")


def _inverse(ratio: Ratio) -> Ratio:
    """The same comparison, seen from the other cell."""
    interval = ratio.interval95 and (1 / ratio.interval95[1], 1 / ratio.interval95[0])
    return Ratio(1 / ratio.value, interval, ratio.scope)


def _number(ratio: Ratio) -> str:
    return units.with_interval(ratio.value, ratio.interval95)
