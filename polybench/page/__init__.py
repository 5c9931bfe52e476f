"""`polybench report`: saved studies as one HTML file, which needs no network and no other file.

Nothing in it is trusted: every text of a document is escaped, and a policy in the page lets only the two
programs run whose hashes it names: `templates/report.js` and plotly.js.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from polybench.core.errors import BadInput
from polybench.core.version import __version__
from polybench.page import programs
from polybench.page.chapter import Chapter, View, view_of
from polybench.page.figures import Shown
from polybench.page.overview import overview
from polybench.plots.style import template

__all__ = ["Chapter", "render"]


def render(chapters: Sequence[Chapter]) -> str:
    """The whole page.

    Args:
        chapters: at least one; each is a study with what belongs to it.

    Raises:
        BadInput: jinja2 or plotly is not installed.
    """
    views = [view_of(chapter, number) for number, chapter in enumerate(chapters, start=1)]
    views = _told_apart(views)
    own, plotly = programs.own(), programs.plotly()
    figures = {figure.id: figure for view in views for figure in view.figures}
    text: str = (
        _environment()
        .get_template("report.html.j2")
        .render(
            views=views,
            overview=overview([(view.title, view.study) for view in views]) if len(chapters) > 1 else None,
            title=views[0].title if len(views) == 1 else f"{len(views)} studies",
            css=programs.text_of("report.css"),
            own=own,
            plotly=plotly,
            drawings=_drawings(figures),
            version=__version__,
        )
    )
    return text


def _told_apart(views: list[View]) -> list[View]:
    """Studies of one workload by their IDs, too."""
    known = Counter(view.title for view in views)
    return [
        view._replace(title=f"{view.title}, {view.study.id}") if known[view.title] > 1 else view
        for view in views
    ]


def _drawings(figures: dict[str, Shown]) -> dict[str, Any]:
    """What the page's program draws, and in which style on paper and screen."""
    return {
        "figures": {
            name: {"data": figure.traces, "layout": figure.layout} for name, figure in figures.items()
        },
        "light": template(),
        "dark": template(dark=True),
    }


def _environment() -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup, escape
    except ImportError as error:
        raise BadInput("jinja2 is not installed; pip install 'polybench[report]'") from error
    environment = Environment(
        loader=PackageLoader("polybench.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def breakable(name: str) -> Markup:
        """A line may end within `torch+channels_last/cpu`, where it is read as several words."""
        return Markup(re.sub(r"([+/])", r"\1<wbr>", str(escape(name))))

    environment.filters["breakable"] = breakable
    return environment
