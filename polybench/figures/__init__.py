"""Figures of saved documents. ADD A FIGURE: a file with `draw(document) -> Figure`, and its row here.

Figures are plain data. Only `figures.image_export` imports plotly (extra `plot`), to draw them.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Literal, NamedTuple

from polybench.plugins import Registry

if TYPE_CHECKING:
    from polybench.figures.figure import Figure
    from polybench.schema.analyses import HistoryDocument
    from polybench.schema.measurements import LayersDocument, OverheadDocument, PeakDocument, SweepDocument
    from polybench.schema.study import StudyDocument

    Drawable = StudyDocument | LayersDocument | SweepDocument | OverheadDocument | PeakDocument | HistoryDocument

Kind = Literal["study", "layers", "sweep", "overhead", "peak", "history"]


class FigureSpec(NamedTuple):
    """Location and contents of a figure.

    Attributes:
        function: module and function, as in "package.module:draw"; "layers.draw" is in this package.
        kind: kind of document that the figure shows.
        summary: description for `--help`.
    """

    function: str
    kind: Kind
    summary: str


FIGURES = Registry("figure", FigureSpec)
FIGURES |= {
    "speed": FigureSpec("speed.draw", "study", "speed relative to the baseline"),
    "step_times": FigureSpec("step_times.draw", "study", "step times in order, after the warm-up"),
    "distributions": FigureSpec("step_times.draw_distributions", "study", "distribution of step times in each process"),
    "startup": FigureSpec("startup.draw", "study", "phases of the cold start"),
    "break_even": FigureSpec("break_even.draw", "study", "steps after which a slower start breaks even"),
    "allocations": FigureSpec("allocations.draw", "study", "allocations per step"),
    "cost": FigureSpec("cost.draw", "study", "cost of an epoch over its time"),
    "accuracy": FigureSpec("accuracy.draw", "study", "test accuracy over training time"),
    "layers": FigureSpec("layers.draw", "layers", "time of each layer, with operations stacked"),
    "roofline": FigureSpec("roofline.draw", "layers", "roofline of each layer below the measured peaks"),
    "scaling": FigureSpec("scaling.draw", "sweep", "throughput over a sweep's parameter"),
    "overhead": FigureSpec("scaling.draw_overhead", "overhead", "step time over batch size, with the linear fit"),
    "peak": FigureSpec("roofline.draw_peak", "peak", "measured peaks, and the attainable speed of each layer"),
    "history": FigureSpec("history.draw", "history", "step times of saved studies over time"),
}
"""Figures by their name for --figure; the first of each kind is the default."""


def draw(name: str, document: Drawable) -> Figure:
    """Create a figure of a document of the right kind.

    Raises:
        BadInput: the name is unknown, or the document lacks the data; the message names the command that
            measures them.
    """
    function = FIGURES.find(name).function
    figure: Figure = resolve_name(function if ":" in function else f"{__name__}.{function}")(document)
    return figure


def default_figure(kind: Kind) -> str:
    """Name the default figure of a kind of document."""
    return next(name for name, spec in FIGURES.items() if spec.kind == kind)
