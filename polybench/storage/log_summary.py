"""Summaries of logs, from their first lines and their last one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from polybench.errors import BadInput
from polybench.log import Header, Outline, PlannedConfiguration, StudyEnded, read_outline
from polybench.networks.single_layer import is_single_layer
from polybench.results.summaries import (
    ConfigurationSummary,
    FastestPoint,
    StudySummary,
    SweepPoints,
    head_fields,
    ranked_fields,
    settings_fields,
)
from polybench.schema.documents import DOCUMENT_KINDS
from polybench.schema.metadata import UNKNOWN_HOST
from polybench.schema.options import LogKind
from polybench.schema.result import EndedResult


def summarize_file(path: Path, kind: LogKind = "study") -> StudySummary:
    """Summarize the log of a kind, or say why it is unreadable."""
    try:
        summary = summarize_log(path)
        check_file_name(summary.id, path.stem)
        if summary.kind != kind:
            raise BadInput(f"it is the log of {DOCUMENT_KINDS[summary.kind].description}")
    except (OSError, msgspec.MsgspecError, BadInput) as error:
        file, reason = _printable(path.stem), _printable(getattr(error, "strerror", None) or str(error))
        return StudySummary(file=file, started_at=_written(path), unreadable_reason=reason, kind=kind)
    return summary if summary.started_at else msgspec.structs.replace(summary, started_at=_written(path))


def _written(path: Path) -> float:
    """Return when a file was written; 0 if it no longer exists."""
    with contextlib.suppress(OSError):
        return path.lstat().st_mtime
    return 0.0


def summarize_points(path: Path) -> list[StudySummary]:
    """Summarize the studies of a sweep's points; none if its log is unreadable, which its own summary says."""
    try:
        return [_of_study(point) for point in read_outline(path).points]
    except (OSError, BadInput):
        return []


def _printable(text: str) -> str:
    """Return the text without bytes that are not UTF-8, which the name of a file may have."""
    return text.encode("utf-8", "backslashreplace").decode()


def check_file_name(id: str | None, file: str) -> None:
    """Raise msgspec.ValidationError unless the ID of a document in the results folder is the name of its file."""
    if id != file:
        raise msgspec.ValidationError(f"its ID is {id!r}: expected the name of its file: rename the file to its ID")


def summarize_log(path: Path) -> StudySummary:
    """Summarize a log of any kind; raises as `read_log`."""
    outline = read_outline(path)
    if outline.header.axes:
        return _of_sweep(outline)
    summary = msgspec.structs.replace(_of_study(outline), kind=outline.header.command or "study")
    is_whole_step = summary.kind == "study" or not is_single_layer(summary.model)
    return summary if is_whole_step else msgspec.structs.replace(summary, fastest=None)


def _of_study(outline: Outline) -> StudySummary:
    header, settings, end = outline.header, outline.settings, outline.end
    if settings is None:
        return summary_of(header)
    return summary_of(
        header,
        **settings_fields(settings.settings, header.host),
        **_state(end),
        **ranked_fields([_of_plan(one, end) for one in settings.configurations]),
    )


def _state(end: StudyEnded | None) -> dict[str, bool]:
    return {"finished": end is not None, "interrupted": end is not None and end.outcome == "interrupted"}


def _of_sweep(sweep: Outline) -> StudySummary:
    """Summarize a sweep or overhead by its points; for the latter, which fits lines, none is fastest."""
    header, end, points = sweep.header, sweep.end, [_of_study(one) for one in sweep.points]
    settings = [one.settings.settings for one in sweep.points if one.settings is not None]
    models = dict.fromkeys(one.model for one in settings)
    return summary_of(
        header,
        model=",".join(models),
        pass_=settings[0].pass_ if settings else "training",
        **_state(end),
        configurations=_of_all_points(points),
        fastest=_fastest_point(sweep, points) if header.command == "sweep" else None,
        kind=header.command,
        points=SweepPoints({axis: _in_order(header, axis) for axis in header.axes}, [one.id for one in points]),
    )


def _in_order(sweep: Header, axis: str) -> list[int]:
    """Return the values of an axis: as given, or by size for a line over batch sizes."""
    values = sweep.axes[axis]
    return sorted(values) if sweep.command == "overhead" else values


def _of_all_points(points: Sequence[StudySummary]) -> list[ConfigurationSummary]:
    """Return each configuration of the points once; it is measured if it is at any point."""
    rows = [one for point in points for one in point.configurations]
    measured = {one.configuration for one in rows if one.is_measured}
    return [
        ConfigurationSummary(
            configuration=one.configuration,
            engine=one.engine,
            variant=one.variant,
            device=one.device,
            is_measured=one.configuration in measured,
        )
        for one in {one.configuration: one for one in rows}.values()
    ]


def _fastest_point(sweep: Outline, points: Sequence[StudySummary]) -> FastestPoint | None:
    """Return the configuration and point with the most items per second."""
    ended = sweep.end.results if sweep.end is not None else {}
    found = [
        FastestPoint(
            configuration=one.configuration,
            step_seconds=one.step_seconds,
            inconclusive=ended.get(one.configuration, EndedResult()).is_inconclusive,
            items_per_second=one.workload.batch_size / one.step_seconds,
            parameters=outline.parameters,
            input_kind=outline.settings.settings.input_kind,
        )
        for outline, point in zip(sweep.points, points, strict=True)
        for one in point.configurations
        if one.step_seconds and one.workload and outline.settings and one.ended.is_for_production
    ]
    return max(found, key=lambda one: one.items_per_second, default=None)


def summary_of(header: Header, **own: Any) -> StudySummary:
    """Summarize a run of which only the header is known, and `own` fields."""
    host = {"hostname": UNKNOWN_HOST if header.anonymous else header.host.hostname}
    return StudySummary(**(head_fields(header) | {"finished": False} | host | own))


def _of_plan(planned: PlannedConfiguration, end: StudyEnded | None) -> ConfigurationSummary:
    """Summarize a configuration of a log."""
    one, name = planned.configuration, planned.name
    ended = end.results.get(name, EndedResult()) if end is not None else EndedResult()
    step_seconds = end.step_seconds.get(name) if end is not None else None
    return ConfigurationSummary(
        configuration=name,
        engine=one.engine,
        variant=one.variant,
        device=one.device,
        is_measured=step_seconds is not None,
        step_seconds=step_seconds,
        workload=planned.workload,
        variables=(planned.env_vars, planned.inherited_env_vars),
        ended=ended,
    )
