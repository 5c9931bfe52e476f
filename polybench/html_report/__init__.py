"""HTML pages of `polybench report`: self-contained reports, and the pages beside them in a folder of all studies.

Documents are untrusted input. All their texts are escaped, and the Content-Security-Policy of a page allows
only two scripts, by their hashes: `templates/report.js` and plotly.js.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from polybench.html_report import page
from polybench.html_report.study_section import StudySection, build_view, overview
from polybench.html_report.sweep_section import build_overhead_view, build_sweep_view
from polybench.html_report.trace_section import build_trace_view
from polybench.schema.measurements import OverheadDocument, SweepDocument
from polybench.schema.study import StudyDocument
from polybench.schema.trace import TraceDiffDocument

__all__ = ["Section", "StudySection", "render_report"]

Section = StudySection | SweepDocument | OverheadDocument
"""A section of a report."""


def render_report(sections: Sequence[Section | TraceDiffDocument], reports: Collection[str] | None = None) -> str:
    """Render a report as one HTML page; raises BadInput if jinja2 or plotly is not installed.

    Args:
        sections: at least one study with its related documents, sweep, overhead, or pair of recorded trainings.
        reports: IDs of the reports in the same folder, for a page of `polybench report --all`; None for a single file.
    """
    views = [_build(section, number) for number, section in enumerate(sections, start=1)]
    counts = Counter(view["title"] for view in views)
    for view in views:
        if counts[view["title"]] > 1:
            view["title"] += f", {getattr(view['study'], 'id', view['id'])}"
    studies = [view for view in views if isinstance(view["study"], StudyDocument)]
    kinds = "studies" if len(studies) == len(views) else "reports"
    return page.render_page(
        "report.html.j2",
        [figure for view in views for figure in view["all_figures"]],
        root=None if reports is None else "../",
        reports=reports or (),
        views=views,
        overview=overview(studies) if len(studies) > 1 else None,
        title=views[0]["title"] if len(views) == 1 else f"{len(views)} {kinds}",
    )


def _build(section: Section | TraceDiffDocument, number: int) -> page.View:
    if isinstance(section, StudySection):
        return build_view(section, number)
    if isinstance(section, SweepDocument):
        return build_sweep_view(section, number)
    if isinstance(section, TraceDiffDocument):
        return build_trace_view(section, number)
    return build_overhead_view(section, number)
