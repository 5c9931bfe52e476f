"""Errors of two recorded trainings: over the steps, and by weight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from polybench.figures.figure import (
    OPERATIONS,
    Figure,
    NoData,
    Trace,
    TraceStyle,
    escape_text,
    label_margin,
    log_axis,
    scatter,
)
from polybench.schema.trace import StepErrors, TensorErrors, TraceDiffDocument

_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "x")
_KINDS = {
    "weight": "weights",
    "batch": "batch",
    "loss": "loss",
    "gradient": "gradients",
    "statistic": "running statistics",
    "update": "update",
}
_NOTE = "Errors are norm(A - B) / norm(A). An error of 0 has no mark on a logarithmic axis."


def draw_steps(document: TraceDiffDocument) -> Figure:
    """Draw the error of each kind of tensor over the recorded steps."""
    values = [error for step in document.steps for kind in _KINDS if (error := getattr(step, kind))]
    if not values:
        raise NoData("the traces have no difference that a figure can show")
    return Figure(
        title="Errors over the steps",
        note=f"Weights are those before the step. {_NOTE}",
        traces=[trace for number, kind in enumerate(_KINDS) for trace in _line(document.steps, kind, _style(number))],
        layout={
            "xaxis": {
                "title": {"text": "step"},
                "type": "category",
                "categoryorder": "array",
                "categoryarray": [str(step.step) for step in document.steps],
            },
            "yaxis": _error_axis(values),
            "margin": {"l": 88, "r": 24},
        },
        height=360,
    )


def _style(number: int) -> TraceStyle:
    return TraceStyle(OPERATIONS[number], _DASHES[number % len(_DASHES)], _SYMBOLS[number % len(_SYMBOLS)])


def _line(steps: Iterable[StepErrors], kind: str, style: TraceStyle) -> Iterator[Trace]:
    points = [(str(step.step), error) for step in steps if (error := getattr(step, kind))]
    if points:
        yield scatter(
            "lines+markers",
            *zip(*points, strict=True),
            name=_KINDS[kind],
            tooltips=[f"{_KINDS[kind]}, step {step}: {error:.2g}" for step, error in points],
            line=style.line(2),
            marker=style.marker(8),
        )


def draw_tensors(document: TraceDiffDocument) -> Figure:
    """Draw the error of each weight's gradient in each recorded step, in the order of the network."""
    shown = "gradient" if any(one.gradient for one in document.tensors) else "weight"
    names = list(dict.fromkeys(one.tensor for one in document.tensors))
    steps = list(dict.fromkeys(one.step for one in document.tensors))
    values = [error for one in document.tensors if (error := getattr(one, shown))]
    if not values:
        raise NoData("the traces have no difference that a figure can show")
    return Figure(
        title=f"Errors of {'gradients' if shown == 'gradient' else 'weights'} by layer",
        note=f"One mark for each step. Gradients that are rounding in step 0 may differ by any factor. {_NOTE}",
        traces=[
            trace
            for number, step in enumerate(steps[: len(OPERATIONS)])
            for trace in _marks((one for one in document.tensors if one.step == step), shown, step, _style(number))
        ],
        layout={
            "xaxis": _error_axis(values),
            "yaxis": {
                "type": "category",
                "categoryorder": "array",
                "categoryarray": list(map(escape_text, names)),
                "autorange": "reversed",
                "tickfont": {"size": 11},
            },
            "margin": {"l": label_margin(names), "r": 24},
        },
        height=140 + 20 * len(names),
    )


def _marks(errors: Iterable[TensorErrors], shown: str, step: int, style: TraceStyle) -> Iterator[Trace]:
    points = [(error, one.tensor) for one in errors if (error := getattr(one, shown))]
    if points:
        yield scatter(
            "markers",
            [error for error, _ in points],
            [escape_text(name) for _, name in points],
            name=f"step {step}",
            tooltips=[f"{name}, step {step}: {error:.2g}" for error, name in points],
            marker=style.marker(8),
        )


def _error_axis(values: Iterable[float]) -> dict[str, object]:
    axis = log_axis(values, padding=2)
    return axis | {"title": {"text": "relative error"}, "ticktext": [f"{tick:.0e}" for tick in axis["tickvals"]]}
