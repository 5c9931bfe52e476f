"""Points of a sweep in its tables: their order and their labels."""

from __future__ import annotations

from polybench.schema import units
from polybench.schema.measurements import PointResult, SweepDocument, SweepPoint

OVERSUBSCRIBED = "*"
"""Mark of rows with more threads than cores."""


def sort_points(sweep: SweepDocument) -> list[tuple[SweepPoint, PointResult]]:
    """Group results by configuration, in the order of the curves; those without a curve come last."""
    results = [(point, result) for point in sweep.points for result in point.configurations]
    order = {curve.configuration: number for number, curve in enumerate(sweep.curves)}
    return sorted(results, key=lambda one: order.get(one[1].configuration, len(order)))


def label_titles(sweep: SweepDocument) -> list[str]:
    """Name the label columns: the axes and the engine."""
    return [*(axis.replace("_", " ") for axis in sweep.axes), "engine"]


def row_labels(point: SweepPoint, result: PointResult) -> list[str]:
    """Format the label columns of a row."""
    name = f"{result.configuration} {OVERSUBSCRIBED}" if point.oversubscribed else result.configuration
    return [*(format_value(axis, value) for axis, value in point.parameters.items()), name]


def format_value(axis: str, value: int) -> str:
    """Format the value of an axis."""
    return ("off", "on")[value] if axis == "augment" else units.format_count(value)


def format_point(parameters: dict[str, int]) -> str:
    """Describe a point: `batch size 8, threads 2`."""
    return ", ".join(f"{axis.replace('_', ' ')} {format_value(axis, value)}" for axis, value in parameters.items())
