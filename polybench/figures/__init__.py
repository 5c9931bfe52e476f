"""Figures of saved documents. ADD A FIGURE: a file with `draw(document) -> Figure`, and its row here.

Figures are plain data. Only `figures.image_export` imports plotly (extra `plot`), to draw them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple

from polybench.errors import lookup_or_suggest

if TYPE_CHECKING:
    from polybench.figures.figure import Figure
    from polybench.schema.history import HistoryDocument
    from polybench.schema.layers import LayersDocument
    from polybench.schema.overhead import OverheadDocument
    from polybench.schema.peak import PeakDocument
    from polybench.schema.study import StudyDocument
    from polybench.schema.sweep import SweepDocument

    Drawable = StudyDocument | LayersDocument | SweepDocument | OverheadDocument | PeakDocument | HistoryDocument

Kind = Literal["study", "layers", "sweep", "overhead", "peak", "history"]


class FigureSpec(NamedTuple):
    """Location and contents of a figure.

    Attributes:
        module: contains `draw`; imported on first use.
        kind: kind of document that the figure shows.
        summary: description for `--help`.
        in_report: True if reports contain the figure. Figures that grow with the depth of the network do not.
    """

    module: str
    kind: Kind
    summary: str
    in_report: bool = True


FIGURES: dict[str, FigureSpec] = {
    "speed": FigureSpec("polybench.figures.speed", "study", "speed relative to the baseline"),
    "step_times": FigureSpec("polybench.figures.step_times", "study", "step times in order, after the warm-up"),
    "distributions": FigureSpec(
        "polybench.figures.distributions", "study", "distribution of step times in each process"
    ),
    "startup": FigureSpec("polybench.figures.startup", "study", "phases of the cold start, and break-even"),
    "allocations": FigureSpec("polybench.figures.allocations", "study", "allocations per training step"),
    "cost": FigureSpec("polybench.figures.cost", "study", "cost of an epoch over its time"),
    "accuracy": FigureSpec("polybench.figures.accuracy", "study", "test accuracy over training time"),
    "layers": FigureSpec("polybench.figures.layers", "layers", "time of each layer, with operations stacked"),
    "operations": FigureSpec(
        "polybench.figures.operations",
        "layers",
        "time of each operation, with intervals",
        in_report=False,
    ),
    "roofline": FigureSpec("polybench.figures.roofline", "layers", "roofline of each layer below the measured peaks"),
    "scaling": FigureSpec("polybench.figures.scaling", "sweep", "throughput over a sweep's parameter"),
    "overhead": FigureSpec("polybench.figures.overhead", "overhead", "step time over batch size, with the linear fit"),
    "peak": FigureSpec("polybench.figures.peak", "peak", "measured peaks, and the attainable speed of each layer"),
    "history": FigureSpec("polybench.figures.history", "history", "step times of saved studies over time"),
}
"""Figures by their name for --figure; the first of each kind is the default."""


def draw(name: str, document: Drawable) -> Figure:
    """Create a figure of a document of the right kind.

    Raises:
        BadInput: the name is unknown, or the document lacks the data; the message names the command that
            measures them.
    """
    figure: Figure = import_module(lookup_or_suggest(name, FIGURES, "figure").module).draw(document)
    return figure


def default_figure(kind: Kind) -> str:
    """Name the default figure of a kind of document."""
    return next(name for name, spec in FIGURES.items() if spec.kind == kind)
