"""Pages beside the reports in the folder of `polybench report --all`: the list of studies, differences, the history.

Every page is a file of its own and works without a server, under the Content-Security-Policy of reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import get_args

import msgspec

from polybench.figures import draw
from polybench.html_report import page
from polybench.html_report.page import View
from polybench.render import diff
from polybench.render.history import series_table
from polybench.render.study_list import fastest_text, workload_text
from polybench.results.summaries import StudySummary
from polybench.schema.analyses import DiffDocument, HistoryDocument, Verdict
from polybench.schema.result import library_versions

LIST, HISTORY = "index.html", "history.html"
REPORTS, DIFFS = "reports", "diffs"
"""Files and subfolders of the folder."""


def report_path(study: str) -> str:
    """Return the path of a report in the folder."""
    return f"{REPORTS}/{study}.html"


def diff_path(a: str, b: str) -> str:
    """Return the path of a difference in the folder."""
    return f"{DIFFS}/{a}--{b}.html"


def list_page(
    studies: Sequence[StudySummary], points: Mapping[str, Sequence[StudySummary]], diffs: Mapping[str, DiffDocument]
) -> str:
    """Render the list of studies, sweeps and overheads, in this order.

    Args:
        studies: without the points of sweeps; unreadable ones are listed with the reason.
        points: summaries of its points by sweep or overhead, whose versions the filter finds.
        diffs: differences to the study before, by study.
    """
    rows = [_list_row(one, points.get(one.file, ()), diffs.get(one.file)) for one in studies]
    return page.render_page("list.html.j2", (), root="", rows=rows)


def _list_row(study: StudySummary, points: Sequence[StudySummary], difference: DiffDocument | None) -> View:
    fastest = study.fastest
    row = msgspec.structs.asdict(study) | {
        "pass": study.pass_,
        "axes": study.points and study.points.axes,
        "points": study.points and len(study.points.studies),
        "planned": study.points and study.points.point_count,
        "fastest": fastest and msgspec.structs.asdict(fastest),
    }
    texts = {"workload": workload_text(row), "fastest": fastest_text(row)}
    versions = {
        f"{name} {version}"
        for one in (study, *points)
        for configuration in one.configurations
        for name, version in library_versions(configuration.ended.versions).items()
    }
    return (
        row
        | texts
        | {
            "report": report_path(study.file),
            "versions": sorted(versions),
            "difference": difference and diff_path(difference.a.id, difference.b.id),
            "verdicts": _count_verdicts(difference) if difference else [],
        }
    )


def _count_verdicts(document: DiffDocument) -> list[tuple[str, int]]:
    """Return each verdict of the rows with its number."""
    counts = Counter(row.verdict for row in document.rows)
    return [(verdict, counts[verdict]) for verdict in get_args(Verdict) if counts[verdict]]


def diff_page(document: DiffDocument) -> str:
    """Render the difference of two studies, with links to their reports."""
    return page.render_page(
        "diff.html.j2",
        (),
        root="../",
        sides=[(name, one, report_path(one.id)) for name, one in (("A", document.a), ("B", document.b))],
        changes=diff.changes(document),
        unchanged=diff.UNCHANGED,
        verdicts=diff.verdicts(document),
    )


def history_page(document: HistoryDocument) -> str:
    """Render a section for each configuration over time, with links to the reports of its studies."""
    views: list[View] = []
    for number, series in enumerate(document.series, start=1):
        drawn = draw("history", msgspec.structs.replace(document, series=[series]))
        figure = page.make_figure_view(drawn, "history", f"s{number}")
        views.append({"id": f"s{number}", "table": series_table(series, document.tolerance), "figure": figure})
    figures = [view["figure"] for view in views]
    return page.render_page("history.html.j2", figures, root="", views=views, report_path=report_path)


def is_page(beginning: bytes) -> bool:
    """Return True if a file that begins so, with 200 bytes or more, is a page that polybench wrote."""
    return b'<meta name="generator" content="polybench ' in beginning
