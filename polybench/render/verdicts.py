"""The answer of a study in sentences: each comparison with the baseline, or why there is none."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from polybench.schema import units
from polybench.schema.names import Namer, namer
from polybench.schema.resources import Interference
from polybench.schema.result import (
    BUSY_HINT,
    INTERFERENCE,
    SINGLE_PROCESS,
    AccuracyDifference,
    Comparison,
    ConfigurationStatus,
    Result,
    busy_hint,
    busy_reason,
    largest_change,
)
from polybench.schema.study import StudyDocument

_MAX_SENTENCES = 6
"""Comparisons in sentences; the table has all of them."""

_MAX_NAMES = 3
"""Comparisons that a sentence names; more are counted."""

WITHOUT_RESULT = ("NO RESULT", "Cannot tell")
"""Beginnings of the sentences that explain why there is no result."""

StatusT = TypeVar("StatusT", bound=ConfigurationStatus)


def summary_sentences(study: StudyDocument) -> list[str]:
    """Explain first what has no result, then compare ranked configurations, GPUs with the CPU, and accuracies."""
    name, tolerance = namer(study), study.settings.tolerance
    ranked = {result.configuration: result for result in study.results if result.is_for_production}
    compared = [
        (ranked[one.baseline], result, one)
        for result in ranked.values()
        if (one := result.vs_baseline) and one.baseline != result.configuration and one.baseline in ranked
    ]
    compared.sort(key=lambda one: -one[-1].speedup)
    on_gpus = [(result, result.gpu_speedup) for result in ranked.values() if result.gpu_speedup]
    sentences = [
        *(
            _sentence(name(one), name(two), found, tolerance, _pass(two))
            for one, two, found in compared
            if not found.is_inconclusive
        ),
        *(_gpu_sentence(*one, tolerance) for one in on_gpus if not one[-1].is_inconclusive),
    ]
    if len(ranked) == 1 and not on_gpus:
        sentences = [_single_sentence(result, name(result)) for result in ranked.values()]
    accuracies = [
        _accuracy_sentence(name(ranked[found.baseline]), ranked[found.baseline], name(result), result, found)
        for result in ranked.values()
        if (found := result.accuracy_difference) and found.baseline in ranked
    ]
    pairs = [
        *((f"{name(two)} and {name(one)}", found) for one, two, found in compared),
        *((f"{result.configuration} and {found.baseline}", found) for result, found in on_gpus),
    ]
    return [*_without_result(study, name, pairs), *_shortened(sentences), *_shortened(accuracies)]


def _without_result(study: StudyDocument, name: Namer, pairs: Sequence[tuple[str, Comparison]]) -> list[str]:
    """Explain which rows and comparisons have no result, one sentence per reason, and what to do."""
    by_reason: dict[str, list[str]] = {}
    for names, found in pairs:
        if found.is_inconclusive:
            by_reason.setdefault(found.inconclusive_reason or SINGLE_PROCESS, []).append(names)
    sentences = []
    for reason, named in by_reason.items():
        sentence = _no_result(named if len(named) < len(pairs) else (), reason)
        sentences.append(sentence.replace("NO RESULT", "Cannot tell") if reason == SINGLE_PROCESS else sentence)
    busy = busy_sentences(study.results, name)
    if not busy and any(reason.startswith(INTERFERENCE) for reason in by_reason):
        excessive = (result.interference for result in study.results if result.interference.is_excessive)
        sentences += dict.fromkeys(_remedy(busy_hint(one)) for one in excessive)
    return [*busy, *sentences]


def busy_sentences(
    configurations: Sequence[StatusT], name: Callable[[StatusT], str] = operator.attrgetter("configuration")
) -> list[str]:
    """Explain which configurations have interference in all timing blocks, and what to do."""
    busy = [one for one in configurations if one.busy and one.status != "failed"]
    if not busy:
        return []
    names = map(name, busy) if len(busy) < sum(one.status in ("ok", "interrupted") for one in configurations) else ()
    reason = busy[0].reason or busy_reason(Interference(), ())
    return [f"{_no_result(names, reason)} {_remedy(busy[0].hint or BUSY_HINT)}"]


def _remedy(hint: str) -> str:
    return f"{hint[:1].upper()}{hint[1:]}"


def _no_result(names: Iterable[str], reason: str) -> str:
    whose = _some([*names])
    return f"NO RESULT{f' for {whose}' if whose else ''}: {reason}."


def _some(names: Sequence[str]) -> str:
    """List some names, and the number of the others."""
    more = len(names) - _MAX_NAMES
    return ", ".join(names if more <= 0 else [*names[:_MAX_NAMES], f"{more} more"])


def _shortened(sentences: Sequence[str]) -> list[str]:
    """Return the first and the last sentences if there are many."""
    if len(sentences) <= _MAX_SENTENCES:
        return [*sentences]
    left_out = len(sentences) - _MAX_SENTENCES + 1
    half = _MAX_SENTENCES // 2
    return [*sentences[:half], f"({left_out} more comparisons are in the table.)", *sentences[half + left_out :]]


def _single_sentence(result: Result, name: str) -> str:
    step = result.step_time
    assert step is not None
    if result.has_wide_step and step.ci95:
        low, high = map(units.format_seconds, step.ci95)
        return f"NO RESULT: the mean step of {name} is between {low} and {high}. Use more --processes."
    return f"A step of {name} takes {units.format_seconds_with_ci(step.mean, step.ci95)}."


def _gpu_sentence(result: Result, speedup: Comparison, tolerance: float) -> str:
    """Compare a GPU with the CPU in the form of published comparisons: "97.8 times; 99.0 % less time"."""
    names = f"{result.configuration} and {speedup.baseline}{_pass(result)}"
    if difference := _no_difference(names, speedup, tolerance):
        return difference
    times = units.format_with_ci(speedup.speedup, speedup.ci95)
    saved = 1 - 1 / speedup.speedup
    percent = units.format_number(100 * abs(saved))
    return (
        f"{result.configuration} is {times} times as fast as {speedup.baseline}{_pass(result)}:"
        f" {percent}% {'less' if saved >= 0 else 'more'} time."
    )


def _no_difference(names: str, comparison: Comparison, tolerance: float) -> str | None:
    """State that two configurations do not differ, or hardly; None for a difference worth naming."""
    assert comparison.ci95 is not None  # otherwise it is inconclusive
    ratio = f"ratio {units.format_with_ci(comparison.speedup, comparison.ci95)}"
    smallest = units.format_percent(tolerance)
    if largest_change(comparison.ci95) <= tolerance:
        return f"{names} differ by less than {smallest}: {ratio}."
    if comparison.is_significant:
        is_small = abs(math.log(comparison.speedup)) < math.log1p(tolerance)
        return f"polybench cannot tell whether {names} differ by more than {smallest}: {ratio}." if is_small else None
    low, high = comparison.ci95
    corrected = "" if low <= 1 <= high else ", not significant among this number of comparisons"
    return f"No significant difference between {names}: {ratio}{corrected}."


def _pass(result: Result) -> str:
    """Name the pass that is measured, if it is not the training step."""
    return " in the forward pass" if result.workload.is_forward_pass else ""


def _sentence(baseline: str, other: str, comparison: Comparison, tolerance: float, measured: str) -> str:
    speedup, interval = comparison.speedup, comparison.ci95
    if difference := _no_difference(f"{other} and {baseline}{measured}", comparison, tolerance):
        return difference
    if speedup < 1:
        baseline, other = other, baseline
        speedup, interval = 1 / speedup, interval and (1 / interval[1], 1 / interval[0])
    return f"{other} is {units.format_with_ci(speedup, interval)} times as fast as {baseline}{measured}."


def _accuracy_sentence(
    baseline_name: str, baseline: Result, name: str, result: Result, difference: AccuracyDifference
) -> str:
    """State both accuracies with their spread over seeds, and whether they differ significantly."""
    after = f"after {units.plural(difference.epochs, 'epoch')}"
    both = " and ".join(units.format_with_std(one.accuracy or 0.0, one.accuracy_std) for one in (result, baseline))
    if difference.ci95 is None:
        return f"Accuracy of {name} and {baseline_name} {after}: {both} (cannot tell: one seed)."
    both = f"{both} over {units.plural(difference.seeds, 'seed')}"
    low, high = difference.ci95
    if not difference.is_significant:
        amount = units.format_difference(difference.value, difference.ci95)
        return (
            f"No significant difference in accuracy between {name} and {baseline_name} {after}: {both},"
            f" difference {amount}."
        )
    if difference.value < 0:
        amount, relation = units.format_difference(-difference.value, (-high, -low)), "below"
    else:
        amount, relation = units.format_difference(difference.value, difference.ci95), "above"
    return f"The accuracy of {name} is {amount} {relation} that of {baseline_name} {after}: {both}."
