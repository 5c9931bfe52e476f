"""Summary of a study: each comparison in a sentence, with a verdict if the data allow one."""

from __future__ import annotations

from polybench.schema import units
from polybench.schema.result import AccuracyDifference, Comparison, Result
from polybench.schema.study import StudyDocument


def summary_sentences(study: StudyDocument) -> list[str]:
    """Compare ranked configurations with the baseline, GPUs with the CPU, and accuracies."""
    by_configuration = {result.configuration: result for result in study.results}
    comparisons = [
        _sentence(by_configuration[result.vs_baseline.baseline], result, result.vs_baseline)
        for result in study.results
        if result.is_ranked
        and result.vs_baseline
        and result.vs_baseline.baseline != result.configuration
        and result.vs_baseline.baseline in by_configuration
    ]
    gpu_speedups = [
        _gpu_sentence(result, result.gpu_speedup) for result in study.results if result.is_ranked and result.gpu_speedup
    ]
    return [
        *comparisons,
        *gpu_speedups,
        *(
            _accuracy_sentence(by_configuration[found.baseline], result, found)
            for result in study.results
            if result.is_ranked and (found := result.accuracy_difference) and found.baseline in by_configuration
        ),
    ]


def _gpu_sentence(result: Result, speedup: Comparison) -> str:
    """Compare a GPU with the CPU in the form of published comparisons: "97.8 times; 99.0 % less time"."""
    times = units.format_with_ci(speedup.speedup, speedup.ci95)
    names = f"{times} times as fast as {speedup.baseline}"
    if speedup.is_significant is None:
        return f"{result.configuration} ran {names} (inconclusive: {_inconclusive_reason(speedup)})."
    if not speedup.is_significant:
        return f"No significant difference between {result.configuration} and {speedup.baseline}: ratio {times}."
    saved = 1 - 1 / speedup.speedup
    percent = units.format_number(100 * abs(saved))
    return f"{result.configuration} is {names}: {percent}% {'less' if saved >= 0 else 'more'} time."


def _sentence(baseline: Result, other: Result, comparison: Comparison) -> str:
    faster, slower = _names(other, baseline)
    speedup, interval = comparison.speedup, comparison.ci95
    if comparison.is_significant is False:
        return (
            f"No significant difference between {faster} and {slower}: ratio {units.format_with_ci(speedup, interval)}."
        )
    if speedup < 1:
        faster, slower = _names(baseline, other)
        speedup, interval = 1 / speedup, interval and (1 / interval[1], 1 / interval[0])
    names = f"{units.format_with_ci(speedup, interval)} times as fast as {slower}"
    if comparison.is_significant is None:
        return f"{faster} ran {names} (inconclusive: {_inconclusive_reason(comparison)})."
    return f"{faster} is {names}."


def _inconclusive_reason(comparison: Comparison) -> str:
    return comparison.inconclusive_reason or "single process"


def _accuracy_sentence(baseline: Result, other: Result, difference: AccuracyDifference) -> str:
    """State both accuracies with their spread over seeds, and whether they differ significantly."""
    first, second = _names(other, baseline)
    after = f"after {units.plural(difference.epochs, 'epoch')}"
    both = " and ".join(
        units.format_with_std(result.accuracy or 0.0, result.accuracy_std) for result in (other, baseline)
    )
    if difference.ci95 is None:
        return f"Accuracy of {first} and {second} {after}: {both} (inconclusive: one seed)."
    both = f"{both} over {units.plural(difference.seeds, 'seed')}"
    low, high = difference.ci95
    if low <= 0 <= high:
        amount = units.format_difference(difference.value, difference.ci95)
        names = f"{first} and {second}"
        return f"No significant difference in accuracy between {names} {after}: {both}, difference {amount}."
    if difference.value < 0:
        amount, relation = units.format_difference(-difference.value, (-high, -low)), "below"
    else:
        amount, relation = units.format_difference(difference.value, difference.ci95), "above"
    return f"The accuracy of {first} is {amount} {relation} that of {second} {after}: {both}."


def _names(first: Result, second: Result) -> tuple[str, str]:
    """Name both configurations; if they share a device, only the second name contains it."""
    name = _name(first) if first.device == second.device else f"{_name(first)} on {first.device}"
    return name, f"{_name(second)} on {second.device}"


def _name(result: Result) -> str:
    return result.configuration.replace(f"/{result.device}", "")
