"""Pages of `polybench view`: the list of studies, reports, comparisons, the history and errors.

Pages contain no scripts except those for figures, load nothing, and link only to each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

import msgspec

from polybench.figures import draw
from polybench.html_report import Section, csp, render_report, scripts
from polybench.html_report.figure_json import figure_json
from polybench.html_report.figures import FigureView, make_figure_view
from polybench.html_report.study_list import StudyListPage
from polybench.html_report.sweep_section import sweep_title
from polybench.html_report.templating import read_template, render_template
from polybench.render import diff
from polybench.render.history import series_table
from polybench.render.table import Table
from polybench.schema.analyses import DiffDocument, HistoryDocument, Series
from polybench.schema.measurements import SweepDocument

FORM_ACTION = "form-action 'self'"
LIST, REPORT, DIFF, HISTORY = "/", "/report", "/diff", "/history"
"""Addresses of the pages."""

FIELDS = {
    "engine": "torch, torch+compile",
    "model": "lenet, catdog-*",
    "device": "cpu, cuda*",
    "host": "host name",
    "since": "2026-11-01",
    "until": "2026-11-30",
    "version": "torch=2.13",
}
"""Filters of `polybench list`, with examples."""


class Page(NamedTuple):
    """HTML with its Content-Security-Policy."""

    text: str
    csp: str


def report_page(sections: Sequence[Section]) -> Page:
    """Create a report with a link to the list of studies."""
    return Page(render_report(sections, home=LIST), f"{csp.csp_with_figures()}; form-action 'none'; {csp.NO_FRAMING}")


def list_page(page: StudyListPage, sweeps: Sequence[SweepDocument]) -> Page:
    """Create a page of the list of saved studies, and list sweeps below it."""

    def page_url(number: int) -> str:
        return f"{LIST}?{urlencode([*page.filters, ('page', str(number))])}"

    return _static_page(
        "list.html.j2",
        page=page,
        filters=dict(page.filters),
        fields=FIELDS,
        page_url=page_url,
        sweeps=[(sweep.id, sweep_title(sweep), sweep.created, sweep.host.hostname) for sweep in sweeps],
    )


def diff_page(document: DiffDocument, names: Sequence[str]) -> Page:
    """Create a comparison of two studies; `names` identify A and B in addresses."""
    return _static_page(
        "diff.html.j2",
        document=document,
        names=names,
        changes=diff.changes(document),
        unchanged=diff.UNCHANGED,
        verdicts=diff.verdicts(document),
    )


class SeriesView(NamedTuple):
    """Texts about a configuration over time."""

    id: str
    table: Table
    figure: FigureView


def history_page(document: HistoryDocument, filters: Mapping[str, str], study_count: str) -> Page:
    """Create a section for each configuration over time.

    Args:
        document: the history.
        filters: filters in use.
        study_count: sentence about the number of studies.
    """
    views = [_series(document, series, number) for number, series in enumerate(document.series, start=1)]
    if not views:
        return _static_page(
            "history.html.j2",
            views=[],
            filters=filters,
            fields=FIELDS,
            study_count=study_count,
            report_script=None,
        )
    return Page(
        render_template(
            "history.html.j2",
            css=_css(),
            views=views,
            filters=filters,
            fields=FIELDS,
            study_count=study_count,
            report_script=scripts.report_script(),
            plotly_script=scripts.plotly_script(),
            figure_json=figure_json(view.figure for view in views),
        ),
        f"{csp.csp_with_figures()}; {FORM_ACTION}; {csp.NO_FRAMING}",
    )


def error_page(title: str, reason: str) -> Page:
    """Create an error page with a link to the list of studies."""
    return _static_page("error.html.j2", title=title, reason=reason)


def _series(document: HistoryDocument, series: Series, number: int) -> SeriesView:
    section_id = f"s{number}"
    single = msgspec.structs.replace(document, series=[series])
    return SeriesView(
        section_id, series_table(series), make_figure_view(draw("history", single), "history", section_id)
    )


def _static_page(template: str, **values: Any) -> Page:
    css = _css()
    return Page(
        render_template(template, css=css, **values),
        f"{csp.csp_without_scripts(css)}; {FORM_ACTION}; {csp.NO_FRAMING}",
    )


def _css() -> str:
    return read_template("report.css") + read_template("served.css")
