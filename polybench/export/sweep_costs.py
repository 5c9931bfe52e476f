"""What an epoch takes and costs at each point of a sweep, relative to one base configuration.

As the comparison of cloud CPUs of 2017 printed it: https://minimaxir.com/2017/07/cpu-or-gpu/
"""

from __future__ import annotations

from polybench.core import units
from polybench.core.document.sweep import SweepDocument, SweptCell
from polybench.export.records import laid_out
from polybench.export.sweep_cells import header_of, names_of, ordered, place_of

_HEADER = ["$ an hour", "epoch time", "relative time", "cost", "relative cost"]

CostTable = tuple[str, list[str], list[list[str]], int]
"""A title, a header, rows, and how many of the first columns are words."""


def cost_table(sweep: SweepDocument) -> CostTable | None:
    """The cells that were measured, in the order of the sweep's table; None where nothing has a price."""
    measured = [(point, cell) for point, cell in ordered(sweep) if cell.epoch_seconds is not None]
    if all(cell.dollars_per_epoch is None for _, cell in measured):
        return None
    base, header = sweep.base, header_of(sweep)
    relative = f", relative to {base.cell} at {place_of(base.values)}" if base else ""
    rows = [[*names_of(point, cell), *_numbers(cell)] for point, cell in measured]
    return f"time and cost of an epoch{relative}", [*header, *_HEADER], rows, len(header)


def block(table: CostTable, *, markdown: bool) -> str:
    """The same as text."""
    title, header, rows, words = table
    return f"{title}\n\n{laid_out(header, rows, left=words, markdown=markdown)}"


def cheapest(sweep: SweepDocument) -> str | None:
    """Where an epoch costs least, of all cells; None where nothing has a price."""
    priced = [
        (cell.dollars_per_epoch, cell.cell, point.values)
        for point in sweep.points
        for cell in point.cells
        if cell.dollars_per_epoch is not None
    ]
    if not priced:
        return None
    dollars, cell, values = min(priced, key=lambda one: one[0])
    return f"cheapest epoch: {cell} at {place_of(values)}: ${units.number(dollars)}"


def _numbers(cell: SweptCell) -> list[str]:
    return [
        "" if cell.dollars_per_hour is None else units.number(cell.dollars_per_hour),
        "" if cell.epoch_seconds is None else units.seconds(cell.epoch_seconds),
        "" if cell.relative_time is None else units.number(cell.relative_time),
        "" if cell.dollars_per_epoch is None else f"${units.number(cell.dollars_per_epoch)}",
        "" if cell.relative_cost is None else units.number(cell.relative_cost),
    ]
