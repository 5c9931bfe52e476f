"""Summaries of saved sweeps and overheads, which lists show with the studies of their points."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from polybench.data.disk import read_regular_file
from polybench.errors import BadInput
from polybench.schema.encoding import decode
from polybench.schema.measurements import OverheadDocument, SweepDocument
from polybench.schema.options import EngineName
from polybench.storage.store import Store
from polybench.storage.study_summary import (
    ConfigurationSummary,
    FastestPoint,
    Filters,
    StudySummary,
    SweepPoints,
    parse_time,
)


def summarize_sweep(sweep: SweepDocument) -> StudySummary:
    """Summarize a sweep; summaries of its studies have the details."""
    points = SweepPoints(sweep.axes, [point.id for point in sweep.points])
    return StudySummary(
        file=sweep.id or "",
        started_at=parse_time(sweep.created) or 0.0,
        id=sweep.id or "",
        created=sweep.created,
        title=sweep.title,
        model=sweep.model,
        hostname=sweep.host.hostname,
        finished=len(points.studies) == points.point_count and not _is_interrupted(sweep),
        configurations=[_summarize_name(curve.configuration) for curve in sweep.curves],
        fastest=_fastest(sweep),
        kind="sweep",
        points=points,
    )


def summarize_overhead(overhead: OverheadDocument) -> StudySummary:
    """Summarize an overhead. It has no fastest configuration, because each one is a line over batch sizes."""
    points = SweepPoints({"batch_size": overhead.batch_sizes}, overhead.studies)
    interrupted = any(one.status == "interrupted" for one in overhead.configurations)
    return StudySummary(
        file=overhead.id or "",
        started_at=parse_time(overhead.created) or 0.0,
        id=overhead.id or "",
        created=overhead.created,
        model=overhead.model,
        hostname=overhead.host.hostname,
        finished=len(points.studies) == points.point_count and not interrupted,
        configurations=[
            ConfigurationSummary(
                one.configuration, one.engine, one.variant, one.device, one.overhead_seconds is not None, {}
            )
            for one in overhead.configurations
        ],
        kind="overhead",
        points=points,
    )


def sweep_summaries(store: Store) -> list[StudySummary]:
    """Return summaries of all saved sweeps and overheads, readable or not."""
    sweeps = [_summarize_file(path, "sweep") for path in store.files("sweep")]
    return [*sweeps, *(_summarize_file(path, "overhead") for path in store.files("overhead"))]


def _summarize_file(path: Path, kind: Literal["sweep", "overhead"]) -> StudySummary:
    try:
        text = read_regular_file(path)
        if kind == "sweep":
            return summarize_sweep(decode(text, SweepDocument))
        return summarize_overhead(decode(text, OverheadDocument))
    except (OSError, msgspec.MsgspecError) as error:
        written = 0.0
        with suppress(OSError):
            written = path.lstat().st_mtime
        return StudySummary(file=path.stem, started_at=written, unreadable_reason=str(error), kind=kind)


def drop_resumable(sweeps: Sequence[StudySummary], resumable: Sequence[StudySummary]) -> list[StudySummary]:
    """Return the sweeps without a resumable run; an interrupted sweep has a document as well."""
    studies = {id for one in resumable if one.points is not None for id in one.points.studies}
    return [one for one in sweeps if one.points is None or studies.isdisjoint(one.points.studies)]


def filter_summaries(summaries: Sequence[StudySummary], filters: Filters) -> list[StudySummary]:
    """Return the matching summaries in their order, and the sweeps with a matching study.

    A sweep itself has no versions, and it started when its first study did.
    """
    matching = {one.file for one in summaries if filters.matches(one)}
    return [
        one
        for one in summaries
        if one.file in matching or (one.points is not None and not matching.isdisjoint(one.points.studies))
    ]


def _is_interrupted(sweep: SweepDocument) -> bool:
    return any(one.status == "interrupted" for point in sweep.points for one in point.configurations)


def _fastest(sweep: SweepDocument) -> FastestPoint | None:
    measured = [
        FastestPoint(one.configuration, one.step_seconds, one.items_per_second, point.parameters, sweep.input_kind)
        for point in sweep.points
        for one in point.configurations
        if one.step_seconds is not None and one.items_per_second is not None
    ]
    return max(measured, key=lambda one: one.items_per_second, default=None)


def _summarize_name(configuration: str) -> ConfigurationSummary:
    """Summarize a configuration by its name alone, which may be anything in a foreign document."""
    engine, _, rest = configuration.partition("/")
    variants = ""
    with suppress(BadInput):
        parsed = EngineName.parse(engine)
        engine, variants = parsed.engine, "+".join(parsed.variants)
    return ConfigurationSummary(configuration, engine, variants or None, rest.partition("/")[0], True, {})
