"""Figures of saved documents. ADD A FIGURE: one file with `draw(document) -> Plot`, and its row here.

A figure is data until somebody wants to see it: plotly (extra `plot`) is imported by `plots.image` only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple

from polybench.core.names import pick

if TYPE_CHECKING:
    from polybench.core.document.history import HistoryDocument
    from polybench.core.document.layers import LayersDocument
    from polybench.core.document.limit import LimitDocument
    from polybench.core.document.overhead import OverheadDocument
    from polybench.core.document.study import StudyDocument
    from polybench.core.document.sweep import SweepDocument
    from polybench.plots.plot import Plot

    Drawable = (
        StudyDocument | LayersDocument | SweepDocument | OverheadDocument | LimitDocument | HistoryDocument
    )

Kind = Literal["study", "layers", "sweep", "overhead", "limit", "history"]


class FigureRow(NamedTuple):
    """Where a figure is, and of what.

    Attributes:
        module: has `draw`, and is loaded only when asked for.
        of: the kind of document that it shows.
        summary: for `--help`.
        reported: whether reports show it. What is as long as a network is deep is drawn when asked for.
    """

    module: str
    of: Kind
    summary: str
    reported: bool = True


FIGURES: dict[str, FigureRow] = {
    "speed": FigureRow("polybench.plots.speed", "study", "speed relative to the baseline"),
    "steps": FigureRow("polybench.plots.steps", "study", "step time over the run, warm-up first"),
    "distributions": FigureRow("polybench.plots.distributions", "study", "step times of each process"),
    "startup": FigureRow("polybench.plots.startup", "study", "parts of the cold start, and break-even"),
    "allocations": FigureRow("polybench.plots.allocations", "study", "what a step allocates"),
    "cost": FigureRow("polybench.plots.cost", "study", "dollars of an epoch against its time"),
    "accuracy": FigureRow("polybench.plots.accuracy", "study", "test accuracy over training time"),
    "layers": FigureRow("polybench.plots.layers", "layers", "time of each layer, its parts stacked"),
    "parts": FigureRow(
        "polybench.plots.parts", "layers", "each part of each layer, with its interval", reported=False
    ),
    "roofline": FigureRow("polybench.plots.roofline", "layers", "each layer below the measured roofs"),
    "scaling": FigureRow("polybench.plots.scaling", "sweep", "throughput over what a sweep varied"),
    "overhead": FigureRow("polybench.plots.overhead", "overhead", "step time over batch size, and its line"),
    "roofs": FigureRow("polybench.plots.roofs", "limit", "measured roofs, and what they allow each layer"),
    "history": FigureRow("polybench.plots.history", "history", "step times of saved studies over time"),
}
"""By the name for --figure; the first of a kind is what is drawn where none is named."""


def draw(name: str, document: Drawable) -> Plot:
    """The figure of this name, of a document of its kind.

    Raises:
        BadInput: no such figure, or the document has nothing that it could show; the message says what
            would have measured it.
    """
    plot: Plot = import_module(pick(name, FIGURES, "figure").module).draw(document)
    return plot


def default_of(kind: Kind) -> str:
    """The figure of a document of this kind where none is named."""
    return next(name for name, row in FIGURES.items() if row.of == kind)
