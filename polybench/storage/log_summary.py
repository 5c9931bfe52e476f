"""Summaries of logs, for lists of studies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from polybench.log import AnyEvent, DamagedLog, Header, SettingsChosen
from polybench.results.document import report_of
from polybench.schema.encoding import encode
from polybench.storage.anonymize import UNKNOWN_HOST
from polybench.storage.summaries import StudySummary, check_file_name, parse_time, summarize_document


def summarize_log(file: str, events: Sequence[AnyEvent], written: float) -> StudySummary:
    """Summarize the study of a log; `file` is its name without suffix.

    Raises:
        DamagedLog: the events contradict each other.
    """
    header = events[0]
    assert isinstance(header, Header)
    try:
        check_file_name(header.id, file)
    except msgspec.ValidationError as error:
        raise DamagedLog(str(error)) from error
    if any(isinstance(event, SettingsChosen) for event in events):
        return summarize_document(file, encode(report_of(events)), written)
    return summary_of(header)


def summary_of(header: Header, **own: Any) -> StudySummary:
    """Summarize a run of which only the header is known, and `own` fields."""
    return StudySummary(
        file=header.id,
        started_at=parse_time(header.created) or 0.0,
        id=header.id,
        created=header.created,
        title=header.title,
        tags=header.tags,
        hostname=UNKNOWN_HOST if header.anonymous else header.host.hostname,
        finished=False,
        **own,
    )
