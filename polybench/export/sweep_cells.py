"""The cells of a sweep's points as all of its tables have them: in which order, and called what."""

from __future__ import annotations

from polybench.core import units
from polybench.core.document.sweep import SweepDocument, SweepPoint, SweptCell

CROWDED = "*"
"""Marks a row with more threads than there are cores for."""


def ordered(sweep: SweepDocument) -> list[tuple[SweepPoint, SweptCell]]:
    """Cell by cell, in the order of the curves; cells without any come last."""
    cells = [(point, cell) for point in sweep.points for cell in point.cells]
    order = {curve.cell: number for number, curve in enumerate(sweep.curves)}
    return sorted(cells, key=lambda one: order.get(one[1].cell, len(order)))


def header_of(sweep: SweepDocument) -> list[str]:
    """The first columns of a table, which are no numbers: what was varied, and the cell."""
    return [*(axis.replace("_", " ") for axis in sweep.axes), "cell"]


def names_of(point: SweepPoint, cell: SweptCell) -> list[str]:
    """The same of a row."""
    name = f"{cell.cell} {CROWDED}" if point.oversubscribed else cell.cell
    return [*(value_of(axis, value) for axis, value in point.values.items()), name]


def value_of(axis: str, value: int) -> str:
    """As people read it."""
    return ("off", "on")[value] if axis == "augment" else units.count(value)


def place_of(values: dict[str, int]) -> str:
    """`batch size 8, threads 2`."""
    return ", ".join(f"{axis.replace('_', ' ')} {value_of(axis, value)}" for axis, value in values.items())
