"""Figures of a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from polybench.figures import FIGURES, Kind, draw
from polybench.figures.figure import Figure, NoData

if TYPE_CHECKING:
    from polybench.figures import Drawable

_MARGIN = {"t": 24, "b": 56, "l": 64, "r": 24}


class FigureView(NamedTuple):
    """A figure with its texts, and data for plotly.js.

    Attributes:
        kind: kind of document that the figure shows.
    """

    id: str
    name: str
    kind: Kind
    title: str
    note: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any]


def figure_views(documents: Mapping[Kind, Drawable], prefix: str) -> Iterator[FigureView]:
    """Yield the figures of reports for which the documents contain data."""
    for name, spec in FIGURES.items():
        if spec.in_report and spec.kind in documents:
            try:
                yield make_figure_view(draw(name, documents[spec.kind]), name, prefix)
            except NoData:
                continue


def make_figure_view(figure: Figure, name: str, prefix: str) -> FigureView:
    """Convert a figure; its element ID starts with `prefix`."""
    layout = figure.layout | {"height": figure.height, "margin": _MARGIN | figure.layout.get("margin", {})}
    return FigureView(f"{prefix}-{name}", name, FIGURES[name].kind, figure.title, figure.note, figure.traces, layout)
