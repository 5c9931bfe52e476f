"""From an address to a page: what is asked for is looked up among the saved documents, and never a path."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from polybench.core.document.study import StudyDocument
from polybench.core.errors import BadInput
from polybench.page import Chapter, Part
from polybench.page.listing import listing_of
from polybench.page.served import (
    DIFF,
    FIELDS,
    HISTORY,
    LIST,
    REPORT,
    Page,
    diff_page,
    history_page,
    list_page,
    problem_page,
    report_page,
)
from polybench.report.acknowledged import acknowledged
from polybench.report.belongings import belongings
from polybench.report.diff import TOLERANCE, diff
from polybench.report.filter_texts import filters_of
from polybench.report.history import history
from polybench.report.listed import EVERYTHING, Filters, Listed
from polybench.report.saved_studies import Store

MOST_PARTS, MOST_STUDIES, MOST_SWEEPS = 12, 300, 50
"""Of a report; of those that are looked at for lines over time, the newest; of those in the list."""
_MOST_FIELDS = 200
_DIGITS = 7
"""Of the number of a page."""

Query = list[tuple[str, str]]


class Answer(NamedTuple):
    """A page, and with which status it is sent."""

    status: HTTPStatus
    page: Page


class _NotThere(Exception):
    """No document has this name, or no page this address."""


class Answers:
    """The pages of one folder of studies, made when they are asked for, one at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._one_at_a_time = threading.Lock()  # a report may take a hundred megabytes
        self._routes: dict[str, Callable[[Query], Page]] = {
            LIST: self._list,
            REPORT: self._report,
            DIFF: self._diff,
            HISTORY: self._history,
        }

    def to(self, target: str) -> Answer:
        """The answer to an address with its query, `/report?id=...`, whatever it is."""
        try:
            with self._one_at_a_time:
                return Answer(HTTPStatus.OK, self._page(target))
        except _NotThere as error:
            return Answer(HTTPStatus.NOT_FOUND, problem_page("There is no such page", str(error)))
        except BadInput as error:
            return Answer(HTTPStatus.BAD_REQUEST, problem_page("This cannot be shown", str(error)))

    def _page(self, target: str) -> Page:
        try:
            parts = urlsplit(target)
            query = parse_qsl(parts.query, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            raise BadInput("the address is none that a page of polybench has") from None
        if parts.path not in self._routes:
            raise _NotThere(f"Pages are {', '.join(self._routes)}.")
        return self._routes[parts.path](query)

    def _list(self, query: Query) -> Page:
        filters, given = _filters(query)
        saved = self._store.listed()
        wanted = [study for study in saved if filters.has(study)]
        number = _number(dict(query).get("page", "1"))
        first = number == 1 and filters == EVERYTHING
        sweeps = list(itertools.islice(self._store.sweeps(), MOST_SWEEPS)) if first else []
        return list_page(listing_of(wanted, len(saved), given, number), sweeps)

    def _report(self, query: Query) -> Page:
        names = _ids(query)
        if not 1 <= len(names) <= MOST_PARTS:
            raise BadInput(f"choose 1 to {MOST_PARTS} studies for a report; {len(names)} are chosen")
        return report_page([self._part(name) for name in names])

    def _diff(self, query: Query) -> Page:
        """From `a` to `b`; of two chosen in the list, whose order says nothing, to the later one."""
        given, studies = dict(query), self._listed()
        names = [given[side] for side in ("a", "b") if side in given] or _ids(query)
        if len(names) != 2:
            raise BadInput(f"choose two studies for a difference; {len(names)} are chosen")
        found = [self._find(name, studies) for name in names]
        if "a" not in given:
            found.sort(key=lambda study: study.when)
        one, two = map(self._store.read, found)
        return diff_page(diff(one, two, TOLERANCE), [study.file for study in found])

    def _history(self, query: Query) -> Page:
        filters, given = _filters(query)
        matching = sum(study.unreadable is None and filters.has(study) for study in self._store.listed())
        newest = itertools.islice(self._store.studies(filters), MOST_STUDIES)
        document = history(newest, acknowledged(self._store.folder), filters)
        looked_at = f"{min(matching, MOST_STUDIES):,} of {matching:,} studies, the newest."
        return history_page(document, dict(given), looked_at)

    def _part(self, name: str) -> Part:
        for sweep in self._store.sweeps():
            if sweep.id == name:
                return sweep
        study: StudyDocument = self._store.read(self._find(name, self._listed()))
        return Chapter(study, *belongings(study, self._store))

    def _listed(self) -> dict[str, Listed]:
        """By the names by which addresses have them."""
        listed = self._store.listed()
        return {study.id: study for study in listed} | {study.file: study for study in listed}

    def _find(self, name: str, studies: dict[str, Listed]) -> Listed:
        if name not in studies:
            raise _NotThere(f"No saved study is called {name!r}.")
        return studies[name]


def _ids(query: Query) -> list[str]:
    return list(dict.fromkeys(value for name, value in query if name == "id"))


def _filters(query: Query) -> tuple[Filters, Query]:
    """What they choose, and those that are given, for links."""
    given = [(name, value.strip()) for name, value in query if name in FIELDS and value.strip()]
    versions = [value for name, value in given if name == "version"]
    return filters_of(dict(given), versions, before=""), given


def _number(text: str) -> int:
    """Of a page; 1 for what is none."""
    return int(text) if text.isdecimal() and text.isascii() and len(text) <= _DIGITS else 1
