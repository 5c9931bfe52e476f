"""Saved studies -> each cell over time, with the steps of its line. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from polybench.core.document.diff import Changed
from polybench.core.document.history import HistoryDocument, Point, Series, Step
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.statistics import process_levels, step_seconds
from polybench.core.steps import pieces
from polybench.report.anonymous import UNKNOWN_HOST
from polybench.report.changed import said
from polybench.report.diff import TOLERANCE
from polybench.report.disturbance import quiet_steps
from polybench.report.listed import EVERYTHING, Filters, listed_cell

MOST = 300
"""Studies of one cell that are looked at, the newest: the fit takes the square of their number."""

_LEAST_ERROR, _UNKNOWN_ERROR = 0.005, 0.10
"""Of a log: no study is trusted more than to half a percent, whatever its processes say; processes of one
program differ by up to a tenth, which is what one process alone may be off by."""

Acknowledged = Mapping[str, frozenset[str]]
"""Study -> the cells of which a step that begins there is known already."""


def history(
    studies: Iterable[StudyDocument],
    acknowledged: Acknowledged,
    wanted: Filters = EVERYTHING,
    tolerance: float = TOLERANCE,
) -> HistoryDocument:
    """Each cell over time, by machine and workload; only ranked ones count.

    Args:
        studies: the newest first; each is looked at once, so they need not be in memory together.
        acknowledged: the steps that were told already.
        wanted: which cells of these studies.
        tolerance: the fraction up to which a step is none.
    """
    found: dict[tuple[Any, ...], list[Point]] = {}
    examples: dict[tuple[Any, ...], tuple[StudyDocument, Result]] = {}
    left_out: dict[tuple[Any, ...], int] = {}
    for study in studies:
        for result in study.results:
            if not result.ranked or not result.steps or not wanted.has_cell(listed_cell(result)):
                continue
            key = _key(study, result)
            points = found.setdefault(key, [])
            examples.setdefault(key, (_without_results(study), _without_samples(result)))
            if len(points) < MOST:
                points.append(_point(study, result))
            else:
                left_out[key] = left_out.get(key, 0) + 1
    series = [
        _series(*examples[key], points[::-1], acknowledged, tolerance, left_out.get(key, 0))
        for key, points in found.items()
    ]
    return HistoryDocument(tolerance=tolerance, series=_told_apart(series, list(examples.values())))


def _key(study: StudyDocument, result: Result) -> tuple[Any, ...]:
    settings, host = study.settings, study.host
    what = result.workload, settings.data_sha256, settings.heap, bool(settings.pinned)
    # Anonymous studies may be of any machines: each is a series of its own.
    name = study.id if host.hostname == UNKNOWN_HOST else host.hostname
    where = name, host.cpu, host.cores, host.gpus
    return result.cell, msgspec.json.encode((what, where))


def _without_results(study: StudyDocument) -> StudyDocument:
    return msgspec.structs.replace(study, results=[])


def _without_samples(result: Result) -> Result:
    return msgspec.structs.replace(result, samples=None)


def _point(study: StudyDocument, result: Result) -> Point:
    assert result.samples is not None
    quiet = quiet_steps(result)
    seconds = step_seconds(result.steps, result.samples.kind, quiet)
    several = len(process_levels(quiet)) > 1
    versions = {"polybench": study.polybench.version, **listed_cell(result).versions}
    return Point(
        study=study.id,
        created=study.created,
        seconds=seconds.median,
        interval95=seconds.interval95 if several else None,
        level=seconds.median,
        versions=versions,
    )


def _series(
    study: StudyDocument,
    result: Result,
    points: Sequence[Point],
    acknowledged: Acknowledged,
    tolerance: float,
    left_out: int,
) -> Series:
    fitted = pieces([math.log(point.seconds) for point in points], [_error(point) for point in points])
    levels = [math.exp(piece.level) for piece in fitted for _ in range(piece.start, piece.stop)]
    placed = [
        msgspec.structs.replace(point, level=level, changed=_changed(before, point))
        for before, point, level in zip([points[0], *points], points, levels, strict=False)
    ]
    known = [
        number for number, point in enumerate(points) if result.cell in acknowledged.get(point.study, ())
    ]
    steps = [
        Step(
            study=points[two.start].study,
            before=points[two.start - 1].study,
            created=points[two.start].created,
            ratio=math.exp(one.level - two.level),
            changed=_changed(points[two.start - 1], points[two.start]),
            # With more studies the fit may put a step at a neighbour.
            acknowledged=any(abs(number - two.start) <= 1 for number in known),
        )
        for one, two in itertools.pairwise(fitted)
        if abs(one.level - two.level) > math.log1p(tolerance)
    ]
    workload = result.workload
    return Series(
        cell=result.cell,
        engine=result.engine,
        variant=result.variant,
        device=result.device,
        model=workload.model,
        dataset=workload.dataset,
        batch_size=workload.batch_size,
        precision=workload.precision,
        threads=workload.threads,
        hostname=study.host.hostname,
        cpu=study.host.cpu,
        other="",
        points=placed,
        steps=steps,
        left_out=left_out,
    )


def _error(point: Point) -> float:
    if point.interval95 is None:
        return _UNKNOWN_ERROR
    low, high = point.interval95
    return max(_LEAST_ERROR, (math.log(high) - math.log(low)) / 2)


def _changed(before: Point, after: Point) -> Changed:
    one, two = before.versions, after.versions
    return {
        name: (one.get(name), two.get(name))
        for name in dict.fromkeys([*one, *two])
        if one.get(name) != two.get(name)
    }


def _told_apart(series: Sequence[Series], examples: Sequence[tuple[StudyDocument, Result]]) -> list[Series]:
    """With what two differ in that say the same of cell, workload and machine."""
    rest = [
        {
            "optimizer": said(msgspec.to_builtins(result.workload.optimizer)),
            "input": result.workload.input,
            "workers": result.workload.workers,
            "augment": result.workload.augment,
            "heap": study.settings.heap,
            "pinned": bool(study.settings.pinned),
            "data": study.settings.data_sha256[:8],
            "cores": study.host.cores,
            "gpus": said(study.host.gpus),
        }
        for study, result in examples
    ]
    alike: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for one, facts in zip(series, rest, strict=True):
        alike.setdefault(_of_itself(one), []).append(facts)
    return [
        msgspec.structs.replace(one, other=_what_differs(facts, alike[_of_itself(one)]))
        for one, facts in zip(series, rest, strict=True)
    ]


def _of_itself(one: Series) -> tuple[object, ...]:
    workload = one.model, one.dataset, one.batch_size, one.precision, one.threads
    return one.cell, *workload, one.hostname, one.cpu


def _what_differs(facts: Mapping[str, Any], alike: Sequence[Mapping[str, Any]]) -> str:
    varied = [name for name in facts if len({str(one[name]) for one in alike}) > 1]
    return ", ".join(f"{name} {said(facts[name])}" for name in varied)
