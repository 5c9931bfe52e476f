"""The pages of `polybench view` beside reports: the list of studies, differences, cells over time, problems.

They have no program but those of their figures, and load nothing; links lead to other pages only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from polybench.core.document.diff import DiffDocument
from polybench.core.document.history import HistoryDocument, Series
from polybench.core.document.sweep import SweepDocument
from polybench.export.diff import HEADER, UNCHANGED, changes_of, line_of, sentences_of
from polybench.export.history import cells_of, sentences, title_of
from polybench.page import Part, policy, programs, render
from polybench.page.drawings import drawings
from polybench.page.figures import Shown, shown
from polybench.page.listing import Listing
from polybench.page.sweep import title_of as title_of_sweep
from polybench.page.templating import filled, text_of
from polybench.plots import draw

FORM = "form-action 'self'"
LIST, REPORT, DIFF, HISTORY = "/", "/report", "/diff", "/history"
"""The addresses."""

FIELDS = {
    "engine": "torch, torch+compile",
    "model": "lenet, catdog-*",
    "device": "cpu, cuda*",
    "host": "name of a machine",
    "since": "2026-11-01",
    "until": "2026-11-30",
    "version": "torch=2.13",
}
"""The filters, with an example of each; those of `polybench list`."""


class Page(NamedTuple):
    """What is answered: HTML, and its Content-Security-Policy."""

    text: str
    policy: str


def report_page(parts: Sequence[Part]) -> Page:
    """The same report as the file, with a way back."""
    return Page(render(parts, home=LIST), f"{policy.of_figures()}; form-action 'none'; {policy.UNFRAMED}")


def list_page(listing: Listing, sweeps: Sequence[SweepDocument]) -> Page:
    """Saved studies, a page of them, to be chosen; sweeps beside them."""

    def at(number: int) -> str:
        return f"{LIST}?{urlencode([*listing.given, ('page', str(number))])}"

    return _text(
        "list.html.j2",
        listing=listing,
        given=dict(listing.given),
        fields=FIELDS,
        at=at,
        sweeps=[(sweep.id, title_of_sweep(sweep), sweep.created, sweep.host.hostname) for sweep in sweeps],
    )


def diff_page(document: DiffDocument, names: Sequence[str]) -> Page:
    """What changed, and a verdict for each row; `names` are those of A and B in addresses."""
    return _text(
        "diff.html.j2",
        document=document,
        names=names,
        changes=changes_of(document),
        unchanged=UNCHANGED,
        header=HEADER,
        rows=[(line_of(row), row.verdict) for row in document.rows],
        sentences=list(sentences_of(document)),
    )


class SeriesView(NamedTuple):
    """One cell over time."""

    id: str
    title: str
    header: list[str]
    rows: list[tuple[str, list[str]]]
    sentences: list[str]
    figure: Shown


def history_page(document: HistoryDocument, given: Mapping[str, str], looked_at: str) -> Page:
    """Each cell over time; `looked_at` says of how many studies."""
    views = [_series(document, series, number) for number, series in enumerate(document.series, start=1)]
    if not views:
        return _text("history.html.j2", views=[], given=given, fields=FIELDS, looked_at=looked_at, own=None)
    return Page(
        filled(
            "history.html.j2",
            css=_css(),
            views=views,
            given=given,
            fields=FIELDS,
            looked_at=looked_at,
            own=programs.own(),
            plotly=programs.plotly(),
            drawings=drawings(view.figure for view in views),
        ),
        f"{policy.of_figures()}; {FORM}; {policy.UNFRAMED}",
    )


def problem_page(title: str, reason: str) -> Page:
    """What was wrong, and a way back."""
    return _text("problem.html.j2", title=title, reason=reason)


def _series(document: HistoryDocument, series: Series, number: int) -> SeriesView:
    place = f"s{number}"
    alone = msgspec.structs.replace(document, series=[series])
    header, rows = cells_of(series)
    return SeriesView(
        id=place,
        title=title_of(series),
        header=header,
        rows=[(point.study, row) for point, row in zip(series.points, rows, strict=True)],
        sentences=list(sentences(series)),
        figure=shown(draw("history", alone), "history", place),
    )


def _text(template: str, **values: Any) -> Page:
    css = _css()
    return Page(filled(template, css=css, **values), f"{policy.of_text(css)}; {FORM}; {policy.UNFRAMED}")


def _css() -> str:
    return text_of("report.css") + text_of("served.css")
