"""The figures of documents that have something for them, for a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from polybench.plots import FIGURES, Kind, draw
from polybench.plots.plot import NothingToDraw, Plot

if TYPE_CHECKING:
    from polybench.plots import Drawable

_MARGIN = {"t": 24, "b": 56, "l": 64, "r": 24}


class Shown(NamedTuple):
    """One figure: its texts are the page's own, the rest is plotly's.

    Attributes:
        of: the kind of document that it is of.
    """

    id: str
    name: str
    of: Kind
    title: str
    note: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any]


def figures_of(documents: Mapping[Kind, Drawable], prefix: str) -> Iterator[Shown]:
    """In the order of the table of figures; what was not measured is left out, and what no report shows."""
    for name, row in FIGURES.items():
        if row.reported and row.of in documents:
            try:
                yield shown(draw(name, documents[row.of]), name, prefix)
            except NothingToDraw:
                continue


def shown(plot: Plot, name: str, prefix: str) -> Shown:
    """The figure of this name, at a place whose name begins with `prefix`."""
    layout = plot.layout | {"height": plot.height, "margin": _MARGIN | plot.layout.get("margin", {})}
    return Shown(f"{prefix}-{name}", name, FIGURES[name].of, plot.title, plot.note, plot.traces, layout)
