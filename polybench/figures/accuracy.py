"""Test accuracy over training time: a thin line for each seed, a thick one for their mean."""

from __future__ import annotations

from itertools import accumulate
from statistics import fmean
from typing import Any

from polybench.figures.figure import NEUTRAL, Figure, NoData, Trace, TraceStyle, scatter, styles_for
from polybench.schema import units
from polybench.schema.result import Training
from polybench.schema.study import StudyDocument

Curve = list[tuple[float, float]]
"""Seconds of training, and accuracy in percent, at the ends of epochs."""


def draw(study: StudyDocument) -> Figure:
    """Draw a curve for each training of each configuration."""
    curves = {
        result.configuration: measured
        for result in study.results
        if (measured := [curve for training in result.trainings if (curve := _curve(training))])
    }
    if not curves:
        raise NoData(f"study {study.id} has no accuracies; train epochs with polybench compare --epochs 5 --accuracy")
    styles = styles_for(result.configuration for result in study.results)
    targets = {100 * result.time_to_accuracy.accuracy for result in study.results if result.time_to_accuracy}
    target_line = {"color": NEUTRAL, "width": 1, "dash": "dash"}
    return Figure(
        title="Test accuracy over training time",
        note=("Marks are ends of epochs. Thin lines are seeds, thick lines their mean. Times exclude the evaluation."),
        traces=[
            trace
            for configuration, measured in curves.items()
            for trace in _traces(configuration, measured, styles[configuration])
        ],
        layout={
            "xaxis": {"title": {"text": "training time, s"}, "rangemode": "tozero"},
            "yaxis": {"title": {"text": f"% of test {study.settings.input_kind}s classified correctly"}},
            "margin": {"l": 64, "r": 24},
            "shapes": [
                {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": y, "y1": y, "line": target_line}
                for y in targets
            ],
        },
        height=430,
    )


def _curve(training: Training) -> Curve:
    seconds = accumulate(epoch.seconds for epoch in training.epochs)
    return [
        (end, 100 * epoch.accuracy)
        for end, epoch in zip(seconds, training.epochs, strict=True)
        if epoch.accuracy is not None
    ]


def _traces(configuration: str, curves: list[Curve], style: TraceStyle) -> list[Trace]:
    thin_line: dict[str, Any] = {"line": {"color": style.colour, "width": 1}, "opacity": 0.45, "showlegend": False}
    thin = [
        scatter("lines", *zip(*curve, strict=True), configuration=configuration, **thin_line)
        for curve in (curves if len(curves) > 1 else [])
    ]
    # The mean ends with the first seed that stopped, or it would jump.
    epochs = min(map(len, curves))
    mean = [tuple(map(fmean, zip(*(curve[number] for curve in curves), strict=True))) for number in range(epochs)]
    tooltips = [
        f"{configuration}, epoch {epoch}: {accuracy:.1f}% after {units.format_seconds(seconds)}"
        for epoch, (seconds, accuracy) in enumerate(mean, start=1)
    ]
    thick = scatter(
        "lines+markers",
        *zip(*mean, strict=True),
        configuration=configuration,
        tooltips=tooltips,
        line=style.line(2.5),
        marker=style.marker(9),
    )
    return [*thin, thick]
