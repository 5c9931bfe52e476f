"""The figures of a study that has something for them, for a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from polybench.core.document.layers import LayersDocument
from polybench.core.document.study import StudyDocument
from polybench.plots import FIGURES, draw
from polybench.plots.plot import NothingToDraw, Plot

_MARGIN = {"t": 24, "b": 56, "l": 64, "r": 24}


class Shown(NamedTuple):
    """One figure: its texts are the page's own, the rest is plotly's."""

    id: str
    name: str
    title: str
    note: str
    traces: list[dict[str, Any]]
    layout: dict[str, Any]


def figures_of(study: StudyDocument, layers: LayersDocument | None, prefix: str) -> Iterator[Shown]:
    """In the order of the table of figures; what was not measured is left out."""
    for name, row in FIGURES.items():
        document = {"study": study, "layers": layers}.get(row.of)
        if document is None:
            continue
        try:
            yield _shown(draw(name, document), name, prefix)
        except NothingToDraw:
            continue


def _shown(plot: Plot, name: str, prefix: str) -> Shown:
    layout = plot.layout | {"height": plot.height, "margin": _MARGIN | plot.layout.get("margin", {})}
    return Shown(f"{prefix}-{name}", name, plot.title, plot.note, plot.traces, layout)
