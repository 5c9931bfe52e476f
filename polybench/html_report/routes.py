"""Router of `polybench view`: finds the page for an address among the saved documents, never by path."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from polybench.analysis.diff import TOLERANCE, diff
from polybench.analysis.history import build_history
from polybench.analysis.related_documents import related_documents
from polybench.errors import BadInput
from polybench.html_report import Section, StudySection
from polybench.html_report.server_pages import (
    DIFF,
    FIELDS,
    HISTORY,
    LIST,
    REPORT,
    Page,
    diff_page,
    error_page,
    history_page,
    list_page,
    report_page,
)
from polybench.schema.measurements import OverheadDocument, SweepDocument
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store, load_dismissed
from polybench.storage.summaries import Filters, StudySummary, filter_summaries, filters_from_text, sweep_by_point

MAX_SECTIONS, MAX_STUDIES = 12, 300
"""Limits: sections of a report, newest studies of a history."""
_MAX_QUERY_FIELDS = 200
_MAX_DIGITS = 7
"""Limit for the number of a page."""

Query = list[tuple[str, str]]


class Response(NamedTuple):
    """A page with its HTTP status."""

    status: HTTPStatus
    page: Page


class _NotFound(Exception):
    """Error for an unknown document or address."""


class Router:
    """Creates the pages of a results folder on request, one at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()  # a report may need a hundred megabytes
        self._routes: dict[str, Callable[[Query], Page]] = {
            LIST: self._list,
            REPORT: self._report,
            DIFF: self._diff,
            HISTORY: self._history,
        }

    def dispatch(self, target: str) -> Response:
        """Create the response to an arbitrary address with its query, such as `/report?id=...`."""
        try:
            with self._lock:
                return Response(HTTPStatus.OK, self._page(target))
        except _NotFound as error:
            return Response(HTTPStatus.NOT_FOUND, error_page("Page not found", str(error)))
        except BadInput as error:
            return Response(HTTPStatus.BAD_REQUEST, error_page("Cannot show this page", str(error)))

    def _page(self, target: str) -> Page:
        try:
            parts = urlsplit(target)
            query = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=_MAX_QUERY_FIELDS)
        except ValueError:
            raise BadInput("invalid address: expected a page of polybench") from None
        if parts.path not in self._routes:
            raise _NotFound(f"Available pages: {', '.join(self._routes)}.")
        return self._routes[parts.path](query)

    def _list(self, query: Query) -> Page:
        filters, fields = _filters(query)
        saved = sorted(self._saved().values(), key=lambda one: (one.started_at, one.file))
        points = sweep_by_point(saved)
        matching = [one for one in filter_summaries(saved, filters) if one.file not in points]
        total = sum(one.file not in points for one in saved)
        return list_page(matching, total, fields, _page_number(dict(query).get("page", "1")))

    def _report(self, query: Query) -> Page:
        names = _ids(query)
        if not 1 <= len(names) <= MAX_SECTIONS:
            raise BadInput(f"{len(names)} studies selected: a report needs 1 to {MAX_SECTIONS}")
        return report_page([self._section(name) for name in names])

    def _diff(self, query: Query) -> Page:
        """Compare `a` with `b`, or two studies selected in the list, in the order of their start."""
        fields = dict(query)
        names = [fields[side] for side in ("a", "b") if side in fields] or _ids(query)
        if len(names) != 2:
            raise BadInput(f"{len(names)} studies selected: a comparison needs two")
        saved = self._saved()
        pair = [_find(name, saved) for name in names]
        if "a" not in fields:
            pair.sort(key=lambda study: study.started_at)
        if any(one.kind != "study" for one in pair):
            raise BadInput("a comparison needs two studies; a sweep or overhead cannot be compared")
        a, b = (self._store.read(one, StudyDocument) for one in pair)
        return diff_page(diff(a, b, TOLERANCE, saved=self._store.summaries()), [study.file for study in pair])

    def _history(self, query: Query) -> Page:
        filters, fields = _filters(query)
        matching = sum(study.unreadable_reason is None and filters.matches(study) for study in self._store.summaries())
        newest = itertools.islice(self._store.studies(filters), MAX_STUDIES)
        document = build_history(newest, load_dismissed(self._store.folder), filters)
        study_count = f"The newest {min(matching, MAX_STUDIES):,} of {matching:,} studies."
        return history_page(document, dict(fields), study_count)

    def _section(self, name: str) -> Section:
        found = _find(name, self._saved())
        if found.kind == "sweep":
            return self._store.read(found, SweepDocument)
        if found.kind == "overhead":
            return self._store.read(found, OverheadDocument)
        study = self._store.read(found, StudyDocument)
        return StudySection(study, *related_documents(study, self._store))

    def _saved(self) -> dict[str, StudySummary]:
        """Map IDs, which addresses contain, to studies, sweeps and overheads."""
        return {one.file: one for one in (*self._store.summaries(), *self._store.sweep_summaries())}


def _find(name: str, saved: Mapping[str, StudySummary]) -> StudySummary:
    if name not in saved:
        raise _NotFound(f"No saved study has the ID {name!r}.")
    return saved[name]


def _ids(query: Query) -> list[str]:
    return list(dict.fromkeys(value for name, value in query if name == "id"))


def _filters(query: Query) -> tuple[Filters, Query]:
    """Parse the filters of a query; also return its non-empty fields, for links."""
    fields = [(name, value.strip()) for name, value in query if name in FIELDS and value.strip()]
    versions, tags = ([value for name, value in fields if name == several] for several in ("version", "tag"))
    return filters_from_text(dict(fields), versions, tags, prefix=""), fields


def _page_number(text: str) -> int:
    """Parse the number of a page; 1 for anything else."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= _MAX_DIGITS else 1
