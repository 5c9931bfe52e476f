"""Pages of `polybench view`: the list of studies, reports, comparisons, the history and errors.

Pages contain no scripts except those for figures, load nothing, and link only to each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from polybench.figures import draw
from polybench.html_report import Section, page, render_report
from polybench.html_report.page import FigureView, View
from polybench.render import diff
from polybench.render.history import series_table
from polybench.render.study_list import fastest_text, workload_text
from polybench.schema.analyses import DiffDocument, HistoryDocument
from polybench.storage.summaries import StudySummary

FORM_ACTION = "form-action 'self'"
LIST, REPORT, DIFF, HISTORY = "/", "/report", "/diff", "/history"
"""Addresses of the pages."""

FIELDS = {
    "engine": "torch*",
    "model": "lenet*",
    "device": "cpu, cuda*",
    "host": "host name",
    "since": "2026-11-01",
    "until": "2026-11-30",
    "version": "torch=2.13",
    "title": "nightly*",
    "tag": "ci",
}
"""Filters of `polybench list`, with examples."""


class Page(NamedTuple):
    """HTML with its Content-Security-Policy."""

    text: str
    csp: str


def report_page(sections: Sequence[Section]) -> Page:
    """Create a report with a link to the list of studies."""
    policy = f"{page.csp_with_figures()}; form-action 'none'; {page.NO_FRAMING}"
    return Page(render_report(sections, home=LIST), policy)


def _page(template: str, figures: Sequence[FigureView] = (), **values: Any) -> Page:
    css = page.read_template("report.css") + page.read_template("served.css")
    scripts = page.figure_scripts(figures) if figures else {"report_script": None}
    policy = page.csp_with_figures() if figures else page.csp_without_scripts(css)
    text = page.render_template(template, css=css, **scripts, **values)
    return Page(text, f"{policy}; {FORM_ACTION}; {page.NO_FRAMING}")


def diff_page(document: DiffDocument, names: Sequence[str]) -> Page:
    """Create a comparison of two studies; `names` identify A and B in addresses."""
    return _page(
        "diff.html.j2",
        document=document,
        names=names,
        changes=diff.changes(document),
        unchanged=diff.UNCHANGED,
        verdicts=diff.verdicts(document),
    )


def history_page(document: HistoryDocument, filters: Mapping[str, str], study_count: str) -> Page:
    """Create a section for each configuration over time; `study_count` is a sentence about the number of studies."""
    views: list[View] = []
    for number, series in enumerate(document.series, start=1):
        drawn = draw("history", msgspec.structs.replace(document, series=[series]))
        figure = page.make_figure_view(drawn, "history", f"s{number}")
        views.append({"id": f"s{number}", "table": series_table(series), "figure": figure})
    figures = [view["figure"] for view in views]
    return _page("history.html.j2", figures, views=views, filters=filters, fields=FIELDS, study_count=study_count)


def error_page(title: str, reason: str) -> Page:
    """Create an error page with a link to the list of studies."""
    return _page("error.html.j2", title=title, reason=reason)


PAGE_SIZE = 50
"""Studies per page."""


def list_page(matching: Sequence[StudySummary], total: int, filters: Sequence[tuple[str, str]], number: int) -> Page:
    """Create a page of the list of saved studies, sweeps and overheads, the newest first.

    Args:
        matching: those that match the filters, the oldest first.
        total: number of all.
        filters: names and texts of the filters in use.
        number: of the page, from 1; the last page if it is too large.
    """
    pages = max(1, -(-len(matching) // PAGE_SIZE))
    number = min(max(1, number), pages)
    end = len(matching) - (number - 1) * PAGE_SIZE

    def page_url(number: int) -> str:
        return f"{LIST}?{urlencode([*filters, ('page', str(number))])}"

    return _page(
        "list.html.j2",
        studies=list(map(_list_row, matching[max(0, end - PAGE_SIZE) : end][::-1])),
        matching=len(matching),
        total=total,
        number=number,
        pages=pages,
        filters=dict(filters),
        fields=FIELDS,
        page_url=page_url,
    )


def _list_row(study: StudySummary) -> View:
    points, fastest = study.points, study.fastest
    row = msgspec.structs.asdict(study) | {
        "pass": study.pass_,
        "axes": points and points.axes,
        "points": points and len(points.studies),
        "planned": points and points.point_count,
        "fastest": fastest and msgspec.structs.asdict(fastest),
    }
    return row | {"workload": workload_text(row), "fastest": fastest_text(row)}
