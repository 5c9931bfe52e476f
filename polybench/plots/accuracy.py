"""Test accuracy over training time: a thin line for each seed, a thick one for their mean."""

from __future__ import annotations

from itertools import accumulate
from statistics import fmean

from polybench.core.document.study import StudyDocument
from polybench.core.document.training import Training
from polybench.plots.plot import NothingToDraw, Plot, Trace, rounded, text
from polybench.plots.style import NEUTRAL, Look, looks

Curve = list[tuple[float, float]]
"""Seconds of training, and accuracy in percent, at the ends of epochs."""


def draw(study: StudyDocument) -> Plot:
    """A curve for each training of each cell.

    Raises:
        NothingToDraw: no accuracy was measured.
    """
    curves = {
        result.cell: found
        for result in study.results
        if (found := [curve for training in result.trainings if (curve := _curve(training))])
    }
    if not curves:
        raise NothingToDraw(
            f"study {study.id} has no accuracies; train whole epochs: polybench compare --epochs 5 --accuracy"
        )
    styles = looks(result.cell for result in study.results)
    wanted = {
        result.time_to_accuracy.accuracy for result in study.results if result.time_to_accuracy is not None
    }
    return Plot(
        title="Test accuracy over training time",
        note=(
            "Marks at the ends of epochs; thin lines are seeds, thick ones their means. Evaluation"
            " is not in the time."
        ),
        traces=[trace for cell, found in curves.items() for trace in _traces(cell, found, styles[cell])],
        layout={
            "xaxis": {"title": {"text": "s of training"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": f"% of test {study.settings.unit}s classified rightly"}},
            "margin": {"l": 64, "r": 24},
            "shapes": [_goal(100 * accuracy) for accuracy in wanted],
        },
        height=430,
    )


def _curve(training: Training) -> Curve:
    seconds = accumulate(epoch.seconds for epoch in training.epochs)
    return [
        (so_far, 100 * epoch.accuracy)
        for so_far, epoch in zip(seconds, training.epochs, strict=True)
        if epoch.accuracy is not None
    ]


def _traces(cell: str, found: list[Curve], style: Look) -> list[Trace]:
    shared = {"type": "scatter", "legendgroup": text(cell)}
    thin = [
        shared
        | {
            "x": [rounded(seconds) for seconds, _ in curve],
            "y": [rounded(accuracy) for _, accuracy in curve],
            "mode": "lines",
            "line": {"color": style.colour, "width": 1},
            "opacity": 0.45,
            "showlegend": False,
            "hoverinfo": "skip",
        }
        for curve in (found if len(found) > 1 else [])
    ]
    # Seeds that stopped earlier, having got there, would bend the mean of the others.
    epochs = min(map(len, found))
    mean = [
        tuple(map(fmean, zip(*(curve[number] for curve in found), strict=True))) for number in range(epochs)
    ]
    thick = shared | {
        "name": text(cell),
        "x": [rounded(seconds) for seconds, _ in mean],
        "y": [rounded(accuracy) for _, accuracy in mean],
        "mode": "lines+markers",
        "line": {"color": style.colour, "width": 2.5, "dash": style.dash},
        "marker": {"symbol": style.symbol, "size": 9, "color": style.colour},
        "hovertemplate": f"{text(cell)}: %{{y:.2f}}% after %{{x:.4~g}} s<extra></extra>",
    }
    return [*thin, thick]


def _goal(percent: float) -> dict[str, object]:
    line = {"color": NEUTRAL, "width": 1, "dash": "dash"}
    return {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": percent, "y1": percent, "line": line}
