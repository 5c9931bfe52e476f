"""Builds the history of each configuration over saved studies, with its change points. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from polybench.analysis.diff import SIGNIFICANCE_LEVEL, TOLERANCE, format_value
from polybench.analysis.verdicts import DIFFERENCES, judge
from polybench.results.interference import inconclusive_reason, unaffected_step_times
from polybench.results.summaries import summarize_configuration
from polybench.schema.analyses import Changed, ChangePoint, HistoryDocument, Point, Series, StudySpread
from polybench.schema.metadata import UNKNOWN_HOST
from polybench.schema.result import Result, library_versions
from polybench.schema.study import StudyDocument
from polybench.stats.between_studies import (
    LogRatioChange,
    Repetition,
    combine,
    common_shifts,
    difference_of_shifts,
    estimate_spread_of_series,
    step_level,
)
from polybench.stats.change_points import Segment, segment
from polybench.stats.statistics import student_quantile, summarize_step_times
from polybench.storage.filters import NO_FILTERS, Filters

MAX_STUDIES = 300
"""Number of the newest studies of one configuration that are used; the fit takes quadratic time."""

_MIN_ERROR, _UNKNOWN_ERROR, _NO_INFORMATION = 0.005, 0.10, 1e6
"""Errors of a study's log step time.

No study is assumed to be more accurate than half a percent. Processes of one program differ by up to a tenth,
so this is the error of a study with a single process. A study with too much interference has no weight."""

_Measured = tuple[Point, LogRatioChange | None]
"""A point, and its level with the error; None for one process."""


class _Level(NamedTuple):
    """A level by which other engines on this machine and device know the machine's drift."""

    place: tuple[Any, ...]
    configuration: str
    engine: str
    repetition: Repetition


def build_history(
    studies: Iterable[StudyDocument], filters: Filters = NO_FILTERS, tolerance: float = TOLERANCE
) -> HistoryDocument:
    """Build a series for each ranked configuration, machine and workload.

    Studies come the newest first; each is used once, so they need not be in memory together.
    """
    points_by_key: dict[tuple[Any, ...], list[_Measured]] = {}
    examples: dict[tuple[Any, ...], tuple[StudyDocument, Result]] = {}
    excluded: dict[tuple[Any, ...], int] = {}
    levels: list[_Level] = []
    for study in studies:
        for result in study.results:
            if not result.is_ranked or not result.nested_step_times:
                continue
            key, measured = _series_key(study, result), _point(study, result)
            levels += _control(study, result, key, measured)
            if not filters.matches_configuration(summarize_configuration(result)):
                continue
            points = points_by_key.setdefault(key, [])
            # without the parts that take memory
            example = msgspec.structs.replace(study, results=[]), msgspec.structs.replace(result, step_times=None)
            examples.setdefault(key, example)
            if len(points) < MAX_STUDIES:
                points.append(measured)
            else:
                excluded[key] = excluded.get(key, 0) + 1
    series = [
        _series(*examples[key], points[::-1], levels, tolerance, excluded.get(key, 0))
        for key, points in points_by_key.items()
    ]
    return HistoryDocument(tolerance=tolerance, series=_distinguish(series, list(examples.values())))


def _series_key(study: StudyDocument, result: Result) -> tuple[Any, ...]:
    settings = study.settings
    workload = result.workload, settings.data_sha256, settings.malloc, bool(settings.pinned_cpus)
    return result.configuration, msgspec.json.encode((workload, _machine(study)))


def _machine(study: StudyDocument) -> tuple[Any, ...]:
    host = study.host
    # Anonymous studies may come from any machine, so each has its own series.
    name = study.id if host.hostname == UNKNOWN_HOST else host.hostname
    return name, host.cpu, host.cores, tuple(host.gpus)


def _control(study: StudyDocument, result: Result, key: tuple[Any, ...], measured: _Measured) -> Iterator[_Level]:
    """Yield the level of a conclusive result; results of one group have the same workload and versions."""
    point, level = measured
    if level is not None and point.inconclusive_reason is None:
        group = msgspec.json.encode([*key[:1], key[1].decode(), library_versions(result.versions)]).decode()
        repetition = Repetition(study.id, group, level.log, level.variance)
        yield _Level((*_machine(study), result.device), result.configuration, result.engine, repetition)


def _without_drift(
    place: tuple[Any, ...], engine: str, measured: Sequence[_Measured], levels: Sequence[_Level]
) -> tuple[list[_Measured], list[str]]:
    """Subtract the drift that other engines of the same studies show, and name them."""
    studies = {point.study for point, _ in measured}
    controls = [
        one for one in levels if one.place == place and one.engine != engine and one.repetition.study in studies
    ]
    shifts = common_shifts([one.repetition for one in controls])
    corrected: list[_Measured] = []
    for point, level in measured:
        if (shift := shifts.get(point.study)) is None:
            corrected.append((point, level))
        else:
            ratio = math.exp(-shift.log)
            corrected.append(
                (msgspec.structs.replace(point, machine_drift_ratio=ratio), level and level.subtract(shift))
            )
    return corrected, list(dict.fromkeys(one.configuration for one in controls))


def _point(study: StudyDocument, result: Result) -> _Measured:
    assert result.step_times is not None
    unaffected = unaffected_step_times(result)
    seconds = summarize_step_times(result.nested_step_times, result.step_times.resolution, unaffected)
    level = step_level(unaffected)
    versions = {"polybench": study.polybench.version, **library_versions(result.versions)}
    point = Point(
        study=study.id,
        created=study.created,
        step_seconds=seconds.mean,
        ci95=seconds.ci95 if level else None,
        segment_level=seconds.mean,
        inconclusive_reason=inconclusive_reason(result),
        versions=versions,
        title=study.title,
        tags=study.tags,
    )
    return point, level


def _series(
    study: StudyDocument,
    result: Result,
    raw: Sequence[_Measured],
    others: Sequence[_Level],
    tolerance: float,
    excluded: int,
) -> Series:
    measured, controls = _without_drift((*_machine(study), result.device), result.engine, raw, others)
    points = [point for point, _ in measured]
    spread = estimate_spread_of_series(
        [
            two_level.subtract(one_level)
            for (one, one_level), (two, two_level) in itertools.pairwise(measured)
            if one_level and two_level and one.versions == two.versions
        ]
    )
    drifts = [math.log(point.machine_drift_ratio or 1.0) for point in points]
    segments = segment(
        [math.log(point.step_seconds) + drift for point, drift in zip(points, drifts, strict=True)],
        [_error(*one, spread) for one in measured],
    )
    levels = [math.exp(one.level) for one in segments for _ in range(one.start, one.stop)]
    points_with_levels = [
        msgspec.structs.replace(point, segment_level=level, changed=_changed(before, point))
        for before, point, level in zip([points[0], *points], points, levels, strict=False)
    ]
    change_points = list(_change_points(measured, raw, segments, spread, tolerance))
    workload = result.workload
    return Series(
        configuration=result.configuration,
        engine=result.engine,
        variant=result.variant,
        device=result.device,
        model=workload.model,
        pass_=workload.pass_,
        dataset=workload.dataset,
        batch_size=workload.batch_size,
        precision=workload.precision,
        threads=workload.threads,
        hostname=study.host.hostname,
        cpu=study.host.cpu,
        distinguishing_settings="",
        points=points_with_levels,
        change_points=change_points,
        **({} if change_points else _steadiness(measured, spread, tolerance)),
        controls=controls,
        spread=spread,
        excluded=excluded,
    )


def _change_points(
    measured: Sequence[_Measured],
    raw: Sequence[_Measured],
    segments: Sequence[Segment],
    spread: StudySpread,
    tolerance: float,
) -> Iterator[ChangePoint]:
    """Yield the borders of segments whose levels differ; `raw` has the levels with the machine's drift."""
    for one, two in itertools.pairwise(segments):
        older, newer = slice(one.start, one.stop), slice(two.start, two.stop)
        change = _change(measured[older], measured[newer], spread)
        if change is None:
            continue
        before, first = measured[two.start - 1][0], measured[two.start][0]
        changed = _changed(before, first)
        as_measured = None if changed else _change(raw[older], raw[newer], spread)
        verdict, _ = judge(
            change.ratio,
            change.ci95,
            tolerance,
            is_significant=change.p_value < SIGNIFICANCE_LEVEL,
            confirming=as_measured and as_measured.ratio,
        )
        if verdict in DIFFERENCES:
            yield ChangePoint(
                study=first.study,
                previous_study=before.study,
                created=first.created,
                ratio=change.ratio,
                ci95=change.ci95,
                changed=changed,
            )


def _change(older: Sequence[_Measured], newer: Sequence[_Measured], spread: StudySpread) -> LogRatioChange | None:
    """Return the change between the mean levels of two parts of a series; None if one of them has no level."""
    levels = [
        [level for point, level in part if level is not None and point.inconclusive_reason is None]
        for part in (older, newer)
    ]
    if not all(levels):
        return None
    one, two = (combine(*((1 / len(part), level) for level in part)) for part in levels)
    shifts = difference_of_shifts(spread, spread)
    share = sum(1 / len(part) for part in levels) / 2
    return combine((1, one), (-1, two), (math.sqrt(share), shifts))


def _steadiness(measured: Sequence[_Measured], spread: StudySpread, tolerance: float) -> dict[str, Any]:
    """Return what is known about a series without a change point: the change from its first half to its second."""
    middle = len(measured) // 2
    change = _change(measured[:middle], measured[middle:], spread)
    if change is None:
        return {"verdict": "cannot tell", "reason": "fewer than two studies with an interval"}
    verdict, reason = judge(change.ratio, change.ci95, tolerance, is_significant=False)
    return {"verdict": verdict, "reason": reason}


def _error(point: Point, level: LogRatioChange | None, spread: StudySpread) -> float:
    if point.inconclusive_reason is not None:
        return _NO_INFORMATION
    if level is None:
        return _UNKNOWN_ERROR
    low, high = level.ci95
    return max(_MIN_ERROR, math.hypot(math.log(high / low) / 2, student_quantile(math.inf) * spread.std))


def _changed(before: Point, after: Point) -> Changed:
    one, two = before.versions, after.versions
    return {
        name: (one.get(name), two.get(name)) for name in dict.fromkeys([*one, *two]) if one.get(name) != two.get(name)
    }


def _distinguish(series: Sequence[Series], examples: Sequence[tuple[StudyDocument, Result]]) -> list[Series]:
    """Add the settings that distinguish series with the same configuration, workload and machine."""
    all_settings = [
        {
            "optimizer": format_value(msgspec.to_builtins(result.workload.optimizer)),
            "input": result.workload.input,
            "loader workers": result.workload.loader_workers,
            "augment": result.workload.augment,
            "malloc": study.settings.malloc,
            "pinned CPUs": bool(study.settings.pinned_cpus),
            "data": study.settings.data_sha256[:8],
            "cores": study.host.cores,
            "gpus": format_value(study.host.gpus),
        }
        for study, result in examples
    ]
    groups: dict[tuple[object, ...], list[dict[str, Any]]] = {}
    for one, settings in zip(series, all_settings, strict=True):
        groups.setdefault(_visible_fields(one), []).append(settings)

    def distinguishing(one: Series, settings: Mapping[str, Any]) -> str:
        group = groups[_visible_fields(one)]
        different = [name for name in settings if len({str(other[name]) for other in group}) > 1]
        return ", ".join(f"{name} {format_value(settings[name])}" for name in different)

    return [
        msgspec.structs.replace(one, distinguishing_settings=distinguishing(one, settings))
        for one, settings in zip(series, all_settings, strict=True)
    ]


def _visible_fields(one: Series) -> tuple[object, ...]:
    workload = one.model, one.pass_, one.dataset, one.batch_size, one.precision, one.threads
    return one.configuration, *workload, one.hostname, one.cpu
