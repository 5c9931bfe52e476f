"""HTML reports: the self-contained file of `polybench report`, and the pages of `polybench view`.

Documents are untrusted input. All their texts are escaped, and the Content-Security-Policy of a page allows
only two scripts, by their hashes: `templates/report.js` and plotly.js.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from polybench.html_report import csp, scripts
from polybench.html_report.figure_json import figure_json
from polybench.html_report.overview import overview
from polybench.html_report.study_section import StudySection, StudyView, build_view
from polybench.html_report.sweep_section import SweepView, build_sweep_view
from polybench.html_report.templating import read_template, render_template
from polybench.schema.measurements import SweepDocument

__all__ = ["Section", "StudySection", "render_report"]

Section = StudySection | SweepDocument
"""A section of a report."""

_View = StudyView | SweepView


def render_report(sections: Sequence[Section], home: str | None = None) -> str:
    """Render a report as one HTML page.

    Args:
        sections: at least one study with its related documents, or sweep.
        home: address of the list of studies if `polybench view` serves the report.

    Raises:
        BadInput: jinja2 or plotly is not installed.
    """
    views = _with_unique_titles([_view(section, number) for number, section in enumerate(sections, start=1)])
    studies = [(view.id, view.title, view.study) for view in views if isinstance(view, StudyView)]
    return render_template(
        "report.html.j2",
        views=views,
        overview=overview(studies) if len(studies) > 1 else None,
        title=views[0].title if len(views) == 1 else f"{len(views)} {_noun(views)}",
        css=read_template("report.css"),
        csp=f"{csp.csp_with_figures()}; form-action 'none'",
        report_script=scripts.report_script(),
        plotly_script=scripts.plotly_script(),
        figure_json=figure_json(figure for view in views for figure in view.all_figures),
        home=home,
    )


def _view(section: Section, number: int) -> _View:
    if isinstance(section, SweepDocument):
        return build_sweep_view(section, number)
    return build_view(section, number)


def _noun(views: Sequence[_View]) -> str:
    kinds = {type(view) for view in views}
    return "reports" if len(kinds) > 1 else "sweeps" if kinds == {SweepView} else "studies"


def _with_unique_titles(views: list[_View]) -> list[_View]:
    """Append the ID to titles that occur more than once."""
    counts = Counter(view.title for view in views)
    return [view._replace(title=f"{view.title}, {view.study.id}") if counts[view.title] > 1 else view for view in views]
