"""What was measured to be faster than a cell, and by how much. Pure: nothing is guessed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.statistics import Ratio, differs
from polybench.report.belonging import Axis, Varied, varied
from polybench.report.comparisons import relative, relative_across_studies
from polybench.report.disturbance import no_verdict


class Gain(NamedTuple):
    """A way to run a cell that saves `seconds` of each of its steps."""

    result: Result
    what: Literal["variant"] | Axis
    to: str
    """The faster cell, or the better value."""
    seconds: float
    takes: float
    """What is left of the step: the seconds for as many images."""
    study: str
    """The ID of the study that measured it."""


def gains(study: StudyDocument, result: Result, studies: Sequence[StudyDocument]) -> list[Gain]:
    """What gains most first.

    Only what is certain counts, so that a single process has none: of the variants in this study each that is
    faster, of threads, batch size and heap the best value in other studies that are alike in all else.

    Args:
        study: has the cell.
        result: the cell, ranked.
        studies: saved ones, the newest first.
    """
    found = [*_variants(study, result), *_elsewhere(study, result, studies)]
    return sorted(found, key=lambda gain: -gain.seconds)


def _variants(study: StudyDocument, result: Result) -> Iterator[Gain]:
    for other in study.results:
        same = (other.engine, other.device) == (result.engine, result.device)
        same = same and other.workload.precision == result.workload.precision
        if not (other.ranked and same and other.engine_name != result.engine_name):
            continue
        found = relative(result, other)
        if found is None or found.no_verdict is not None:
            continue
        if _faster(Ratio(found.speedup, found.interval95, found.scope)):
            before, after = result.typical_seconds, other.typical_seconds
            yield Gain(result, "variant", other.cell, before - after, after, study.id)


def _elsewhere(study: StudyDocument, result: Result, studies: Iterable[StudyDocument]) -> Iterator[Gain]:
    known = list(studies)
    for axis in get_args(Axis):
        rows = [row for (row,) in varied(study, [result.cell], axis, known)]
        better = [gain for row in rows if (gain := _gain(result, axis, row)) is not None]
        if better:
            yield max(better, key=lambda gain: gain.seconds)


def _gain(result: Result, axis: Axis, row: Varied) -> Gain | None:
    found = relative_across_studies(result, row.result)
    if not _faster(found) or no_verdict(result, row.result) is not None:
        return None
    before = result.typical_seconds
    after = before / found.value
    return Gain(result, axis, str(row.value), before - after, after, row.study.id)


def _faster(found: Ratio) -> bool:
    return differs(found) is True and found.value > 1
