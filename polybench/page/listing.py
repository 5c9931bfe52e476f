"""A page of the list of saved studies, as texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polybench.core import units
from polybench.report.listed import Listed

ROWS = 50
"""Studies on a page."""


class Line(NamedTuple):
    """One saved document; of one that cannot be read `unreadable` says why, and the rest is empty.

    Attributes:
        file: by which it is found.
    """

    file: str
    title: str
    workload: str = ""
    created: str = ""
    host: str = ""
    fastest: str = ""
    cells: str = ""
    state: str = ""
    unreadable: str = ""


class Listing(NamedTuple):
    """The newest studies first.

    Attributes:
        given: names and texts of the filters.
        saved: how many studies there are; `wanted` are left by the filters.
        page: from 1.
    """

    lines: list[Line]
    given: list[tuple[str, str]]
    saved: int
    wanted: int
    page: int
    pages: int


def listing_of(wanted: Sequence[Listed], saved: int, given: list[tuple[str, str]], page: int) -> Listing:
    """The page of this number, or the last one.

    Args:
        wanted: the oldest first, as lists have them.
        saved: how many there are without a filter.
        given: names and texts of the filters.
        page: from 1.
    """
    pages = max(1, -(-len(wanted) // ROWS))
    page = min(max(1, page), pages)
    end = len(wanted) - (page - 1) * ROWS
    shown = wanted[max(0, end - ROWS) : end]
    return Listing([_line(one) for one in reversed(shown)], given, saved, len(wanted), page, pages)


def _line(study: Listed) -> Line:
    if study.unreadable is not None:
        return Line(study.file, study.file, unreadable=study.unreadable)
    workload = f"{study.model}, {study.dataset}, batch {study.batch_size}"
    fastest = study.fastest
    return Line(
        file=study.file,
        title=study.title or study.id,
        workload=workload,
        created=(study.created or "")[:16].replace("T", " "),
        host=study.hostname,
        fastest=f"{units.seconds(fastest.seconds_per_step)} {fastest.cell}" if fastest else "",
        cells=", ".join(cell.cell for cell in study.cells),
        state="not finished" if study.finished is False else "interrupted" if study.interrupted else "",
    )
