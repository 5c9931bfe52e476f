"""The closing sentences: each comparison in words, with a verdict only where there is one."""

from __future__ import annotations

from polybench.core import units
from polybench.core.results import DeviceSpeedup, Relative, Result, StudyDocument
from polybench.core.statistics import Ratio, differs


def sentences(study: StudyDocument) -> list[str]:
    """One for every ranked cell but the baseline, then one for every engine on a device besides the CPU."""
    by_cell = {result.cell: result for result in study.results}
    compared = [
        _sentence(by_cell[result.relative.baseline], result, result.relative)
        for result in study.results
        if result.ranked
        and result.relative
        and result.relative.baseline != result.cell
        and result.relative.baseline in by_cell
    ]
    return compared + [
        _device_sentence(result, result.device_speedup)
        for result in study.results
        if result.ranked and result.device_speedup
    ]


def _device_sentence(result: Result, found: DeviceSpeedup) -> str:
    """As the published comparisons of CPU and GPU say it: "97.8 times; 99.0 % less time"."""
    times = units.with_interval(found.speedup, found.interval95)
    saved = 1 - 1 / found.speedup
    less = f"{units.number(100 * abs(saved))}% {'less' if saved >= 0 else 'more'} time"
    return f"{result.cell} is {times} times as fast as {found.cpu_cell}: {less}."


def _sentence(baseline: Result, other: Result, relative: Relative) -> str:
    ratio = Ratio(relative.speedup, relative.interval95, relative.scope)
    verdict = differs(ratio)
    if verdict is False:
        one, two = _names(other, baseline)
        return f"no difference shown between {one} and {two}: ratio {_number(ratio)}."
    faster, slower = _names(other, baseline)
    if ratio.value < 1:
        faster, slower = _names(baseline, other)
        ratio = _inverse(ratio)
    if verdict is None:
        return f"{faster} ran {_number(ratio)} times as fast as {slower} (within one run; no verdict)."
    return f"{faster} is {_number(ratio)} times as fast as {slower}."


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
