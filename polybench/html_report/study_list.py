"""Texts of a page with saved studies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polybench.schema import units
from polybench.storage.study_summary import StudySummary

PAGE_SIZE = 50
"""Studies per page."""


class StudyListItem(NamedTuple):
    """A saved study; if polybench cannot read it, only `file` and `unreadable` are set.

    Attributes:
        file: name of the file without its suffix.
        unreadable: reason why polybench cannot read the file.
    """

    file: str
    title: str
    workload: str = ""
    created: str = ""
    host: str = ""
    fastest: str = ""
    configurations: str = ""
    state: str = ""
    unreadable: str = ""


class StudyListPage(NamedTuple):
    """A page of the list, with the newest studies first.

    Attributes:
        filters: names and texts of the filters in use.
        total: number of saved studies.
        matching: number of studies that match the filters.
        page: number of the page, from 1.
        pages: number of pages.
    """

    items: list[StudyListItem]
    filters: list[tuple[str, str]]
    total: int
    matching: int
    page: int
    pages: int


def make_page(matching: Sequence[StudySummary], total: int, filters: list[tuple[str, str]], page: int) -> StudyListPage:
    """Build a page of the list, or the last page if the number is too large.

    Args:
        matching: studies that match the filters, the oldest first.
        total: number of saved studies.
        filters: names and texts of the filters in use.
        page: number of the page, from 1.
    """
    pages = max(1, -(-len(matching) // PAGE_SIZE))
    page = min(max(1, page), pages)
    end = len(matching) - (page - 1) * PAGE_SIZE
    shown = matching[max(0, end - PAGE_SIZE) : end]
    return StudyListPage([_item(study) for study in reversed(shown)], filters, total, len(matching), page, pages)


def _item(study: StudySummary) -> StudyListItem:
    if study.unreadable_reason is not None:
        return StudyListItem(study.file, study.file, unreadable=study.unreadable_reason)
    workload = f"{study.model}, {study.dataset}, batch {study.batch_size}"
    fastest = study.fastest
    return StudyListItem(
        file=study.file,
        title=study.title or study.id,
        workload=workload,
        created=(study.created or "")[:16].replace("T", " "),
        host=study.hostname,
        fastest=f"{units.format_seconds(fastest.step_seconds)} {fastest.configuration}" if fastest else "",
        configurations=", ".join(configuration.configuration for configuration in study.configurations),
        state="unfinished" if study.finished is False else "interrupted" if study.interrupted else "",
    )
