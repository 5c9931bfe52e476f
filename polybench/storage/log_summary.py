"""Summaries of saved files: of a log from its first lines and its last one."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import msgspec

from polybench.data.disk import read_regular_file
from polybench.errors import BadInput
from polybench.log import Header, PlannedConfiguration, StudyEnded, read_outline
from polybench.schema.documents import DOCUMENT_KINDS
from polybench.schema.encoding import decode
from polybench.schema.result import EndedResult
from polybench.storage.anonymize import UNKNOWN_HOST
from polybench.storage.summaries import (
    ConfigurationSummary,
    Kind,
    StudySummary,
    head_fields,
    ranked_fields,
    settings_fields,
    summarize,
)


def summarize_file(path: Path, kind: Kind = "study") -> StudySummary:
    """Summarize a saved document, a study by its log, or say why it is unreadable."""
    try:
        summary = summarize_log(path) if kind == "study" else _summarize_document(path, kind)
        check_file_name(summary.id, path.stem)
    except (OSError, msgspec.MsgspecError, BadInput) as error:
        file, reason = _printable(path.stem), _printable(getattr(error, "strerror", None) or str(error))
        return StudySummary(file=file, started_at=_written(path), unreadable_reason=reason, kind=kind)
    return summary if summary.started_at else msgspec.structs.replace(summary, started_at=_written(path))


def _written(path: Path) -> float:
    """Return when a file was written; 0 if it no longer exists."""
    with contextlib.suppress(OSError):
        return path.lstat().st_mtime
    return 0.0


def _printable(text: str) -> str:
    """Return the text without bytes that are not UTF-8, which the name of a file may have."""
    return text.encode("utf-8", "backslashreplace").decode()


def _summarize_document(path: Path, kind: Kind) -> StudySummary:
    return summarize(decode(read_regular_file(path), DOCUMENT_KINDS[kind].type))


def check_file_name(id: str | None, file: str) -> None:
    """Raise msgspec.ValidationError unless the ID of a document in the results folder is the name of its file."""
    if id != file:
        raise msgspec.ValidationError(f"its ID is {id!r}: expected the name of its file: rename the file to its ID")


def summarize_log(path: Path) -> StudySummary:
    """Summarize the study of a log; raises as `read_log`."""
    header, settings, end = read_outline(path)
    if settings is None:
        return summary_of(header)
    return summary_of(
        header,
        **settings_fields(settings.settings, header.host),
        finished=end is not None,
        interrupted=end is not None and end.outcome == "interrupted",
        **ranked_fields([_of_plan(one, end) for one in settings.configurations]),
    )


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
