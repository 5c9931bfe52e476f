"""Documents as HTML: `polybench report`, one file that needs no network, and the pages of `polybench view`.

Nothing in them is trusted: every text of a document is escaped, and a policy in the page lets only the two
programs run whose hashes it names: `templates/report.js` and plotly.js.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from polybench.core.document.sweep import SweepDocument
from polybench.page import policy, programs
from polybench.page.chapter import Chapter, StudyView, view_of
from polybench.page.drawings import drawings
from polybench.page.overview import overview
from polybench.page.sweep import SweepView, view_of_sweep
from polybench.page.templating import filled, text_of

__all__ = ["Chapter", "Part", "render"]

Part = Chapter | SweepDocument
"""What a report is made of."""

_View = StudyView | SweepView


def render(parts: Sequence[Part], home: str | None = None) -> str:
    """The whole page.

    Args:
        parts: at least one; a study with what belongs to it, or a sweep.
        home: the address of the list of studies, where the page is served beside it.

    Raises:
        BadInput: jinja2 or plotly is not installed.
    """
    views = _told_apart([_view(part, number) for number, part in enumerate(parts, start=1)])
    studies = [(view, view.study) for view in views if isinstance(view, StudyView)]
    return filled(
        "report.html.j2",
        views=views,
        overview=overview([(view.id, view.title, study) for view, study in studies])
        if len(studies) > 1
        else None,
        title=views[0].title if len(views) == 1 else f"{len(views)} {_kind(views)}",
        css=text_of("report.css"),
        policy=f"{policy.of_figures()}; form-action 'none'",
        own=programs.own(),
        plotly=programs.plotly(),
        drawings=drawings(figure for view in views for figure in view.drawn),
        home=home,
    )


def _view(part: Part, number: int) -> _View:
    return view_of_sweep(part, number) if isinstance(part, SweepDocument) else view_of(part, number)


def _kind(views: Sequence[_View]) -> str:
    kinds = {type(view) for view in views}
    return "reports" if len(kinds) > 1 else "sweeps" if kinds == {SweepView} else "studies"


def _told_apart(views: list[_View]) -> list[_View]:
    """Those of one title by their IDs, too."""
    known = Counter(view.title for view in views)
    return [
        view._replace(title=f"{view.title}, {view.study.id}") if known[view.title] > 1 else view
        for view in views
    ]
