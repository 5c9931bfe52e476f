"""Sums an explanation up: a sentence per pair, and one about the starts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from polybench.analysis.breakdown import DATA_WAIT, GARBAGE_COLLECTION, data_wait_seconds, layer_breakdown
from polybench.analysis.step_parts import SharedLayers
from polybench.analysis.upstream_findings import describe_findings
from polybench.schema import units
from polybench.schema.analyses import Breakdown, Component, ExplainedComparison, Statement
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

_MAX_MISS = 0.5
"""Fraction of a difference that its components may miss."""
_ENOUGH = 0.5
"""Fraction of a difference from which a sentence names no further components."""
_WHOLE = 0.995
"""Fraction of a difference that has the same three digits as the whole."""
_NOTABLE = 0.02
"""Fraction of a difference below which a component is not named."""
_MAX_COMPONENTS = 12
_MAX_PHRASES = 3
_MAX_LAYERS = 3
"""Layers that a sentence names; more are counted."""
_MAX_PAIRS = 3
"""Inconclusive pairs that a sentence names; more are counted."""
_MAX_STARTS = 4

_PHRASES = {
    "loss": "the loss",
    "update": "the update",
    "call": "the call of the step",
    GARBAGE_COLLECTION: "garbage collection",
    DATA_WAIT: "waiting for data",
}
_PHASES = {
    "process": "the start of the process",
    "import": "imports",
    "build": "building the network",
    "data": "loading the data",
    "first_step": "the first step",
}

Names = Mapping[str, str]
"""Short names of the configurations."""


class _Cause(NamedTuple):
    """An operation of a layer, or another cost, and its part of a difference."""

    kind: str
    layer: str
    seconds: float


def summarize(
    study: StudyDocument, pairs: Sequence[ExplainedComparison], names: Names, layers: SharedLayers | None
) -> list[Statement]:
    """Return a sentence per pair, the largest difference first, then the inconclusive pairs, and the starts."""
    conclusive = [pair for pair in pairs if pair.inconclusive_reason is None]
    ordered = sorted(conclusive, key=lambda pair: -abs(pair.difference_seconds))
    compared = list(dict.fromkeys(name for pair in pairs for name in (pair.baseline, pair.configuration)))
    results = [study.result(name) for name in compared]
    return [
        *(_pair_sentence(study, pair, names, layers) for pair in ordered),
        *_inconclusive(pairs, names),
        *_caveats(results, names),
        *_starts([one for one in study.results if one in results], names),
    ]


def _pair_sentence(
    study: StudyDocument, pair: ExplainedComparison, names: Names, layers: SharedLayers | None
) -> Statement:
    """State the difference of the slower and the faster configuration, and its causes."""
    baseline, other = study.result(pair.baseline), study.result(pair.configuration)
    slow, fast = (other, baseline) if pair.difference_seconds >= 0 else (baseline, other)
    seconds = abs(pair.difference_seconds)
    text = f"{names[slow.configuration]} - {names[fast.configuration]}: {units.format_seconds(seconds)}"
    breakdown = _layer_breakdown(fast, slow, layers)
    evidence = breakdown.sources[0] if breakdown else "step_time"
    if breakdown is not None and (miss := _describe_miss(breakdown, slow, fast, names)):
        text += f". The layers timed alone do not explain this difference: {miss}"
    else:
        components = breakdown.components if breakdown else _known_to_study(slow, fast)
        causes = _largest_causes([_cause(one) for one in components if _is_certain(one)], seconds)
        if causes:
            sentence = _describe_causes(causes, seconds)
            findings = describe_findings(study, slow, [(one.kind, one.layer, one.seconds) for one in causes])
            text += f"; {sentence}{f' ({findings})' if findings else ''}"
    return Statement(text=f"{text}.", evidence=evidence, seconds=seconds)


def _layer_breakdown(baseline: Result, other: Result, layers: SharedLayers | None) -> Breakdown | None:
    if layers is None or not {baseline.configuration, other.configuration} <= {*layers.configurations}:
        return None
    return layer_breakdown(baseline, other, layers.document)


def _describe_miss(breakdown: Breakdown, slow: Result, fast: Result, names: Names) -> str | None:
    """Return why the components do not explain a difference; None if they do."""
    attributed = sum(one.difference_seconds for one in breakdown.components)
    if abs(attributed - breakdown.difference_seconds) <= _MAX_MISS * abs(breakdown.difference_seconds):
        return None
    sums = [
        (one, sum(getattr(component, name) or 0.0 for component in breakdown.components))
        for one, name in ((slow, "seconds"), (fast, "baseline_seconds"))
    ]
    result, total = max(sums, key=lambda one: abs(one[1] - one[0].step_seconds))
    return (
        f"{names[result.configuration]}'s sum to {units.format_seconds(total)}, its whole step takes"
        f" {units.format_seconds(result.step_seconds)}"
    )


def _known_to_study(slow: Result, fast: Result) -> Iterator[Component]:
    """Yield the costs that a study knows without layers."""
    for name, seconds, other in (
        (GARBAGE_COLLECTION, slow.gc.seconds_per_step, fast.gc.seconds_per_step),
        (DATA_WAIT, data_wait_seconds(slow), data_wait_seconds(fast)),
    ):
        yield Component(name=name, kind=name, difference_seconds=(seconds or 0.0) - (other or 0.0))


def _is_certain(component: Component) -> bool:
    """Return False if the interval of a component contains 0."""
    return component.ci95 is None or component.ci95[0] > 0


def _cause(component: Component) -> _Cause:
    layer = component.name.removesuffix(component.kind).removesuffix(", ")
    return _Cause(component.kind, layer, component.difference_seconds)


def _largest_causes(causes: Sequence[_Cause], seconds: float) -> list[_Cause]:
    """Return the largest causes until they make up enough of the difference; few enough for a sentence."""
    chosen: list[_Cause] = []
    for cause in sorted(causes, key=lambda one: -one.seconds):
        is_enough = sum(one.seconds for one in chosen) >= _ENOUGH * seconds
        if is_enough or cause.seconds < _NOTABLE * seconds or len(chosen) == _MAX_COMPONENTS:
            break
        if len({one.kind for one in (*chosen, cause)}) <= _MAX_PHRASES:
            chosen.append(cause)
    return chosen


def _describe_causes(causes: Sequence[_Cause], seconds: float) -> str:
    by_kind: dict[str, list[str]] = {}
    for cause in causes:
        by_kind.setdefault(cause.kind, []).append(cause.layer.removesuffix(" + relu"))
    phrase = _join([_phrase(kind, layers) for kind, layers in by_kind.items()])
    total = sum(one.seconds for one in causes)
    if total >= _WHOLE * seconds:
        verb = "alone differs by" if len(causes) == 1 else "together differ by"
        return f"{phrase} {verb} {units.format_seconds(total)}"
    part, _, _ = units.format_part(total, seconds).partition(" of ")
    return f"{part} of them are {phrase}"


def _phrase(kind: str, layers: Sequence[str]) -> str:
    if kind in _PHRASES:
        return _PHRASES[kind]
    noun = "forward pass" if kind == "forward" else kind
    plural = "es" if noun.endswith("s") else "s"
    where = _join(layers) if len(layers) <= _MAX_LAYERS else f"{len(layers)} layers"
    return f"the {noun}{plural if len(layers) > 1 else ''} of {where}"


def _join(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _inconclusive(pairs: Sequence[ExplainedComparison], names: Names) -> Iterator[Statement]:
    """Yield the reasons for which differences are inconclusive, each with its pairs."""
    by_reason: dict[str, list[str]] = {}
    for pair in pairs:
        if pair.inconclusive_reason is not None:
            text = f"{names[pair.configuration]} and {names[pair.baseline]}"
            by_reason.setdefault(pair.inconclusive_reason, []).append(text)
    for reason, texts in by_reason.items():
        more = len(texts) - _MAX_PAIRS
        listed = [*texts[:_MAX_PAIRS], *([units.plural(more, "more pair")] if more > 0 else [])]
        yield Statement(text=f"Cannot tell {'; '.join(listed)} apart: {reason}.", evidence="speedup")


def _caveats(results: Sequence[Result], names: Names) -> Iterator[Statement]:
    for result in results:
        if result.caveat:
            text = f"{names[result.configuration]} is for teaching only: {result.caveat}."
            yield Statement(text=text, evidence="step_time")


def _starts(results: Sequence[Result], names: Names) -> Iterator[Statement]:
    """Yield the cold starts, with the longest phase of the slowest one."""
    seconds = {one.configuration: one.startup.cold_start_seconds for one in results if one.startup is not None}
    if not seconds:
        return
    slowest = max(seconds, key=lambda name: seconds[name])
    startup = next(one.startup for one in results if one.configuration == slowest)
    longest = max(_PHASES, key=lambda phase: getattr(startup, f"{phase}_seconds"))
    starts = {name: f"{names[name]} {units.format_seconds(value)}" for name, value in seconds.items()}
    part = units.format_seconds(getattr(startup, f"{longest}_seconds"))
    starts[slowest] += f" ({part} of it {_PHASES[longest]})"
    shown = list(starts.values())
    if len(shown) > _MAX_STARTS:
        others = [text for name, text in starts.items() if name != slowest]
        shown = [starts[slowest], *others[: _MAX_STARTS - 1], f"{len(starts) - _MAX_STARTS} more"]
    yield Statement(text=f"start: {', '.join(shown)}.", evidence="cold_start")
