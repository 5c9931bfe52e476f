"""Time and cost per epoch at each point of a sweep, relative to one configuration.

The table follows a comparison of cloud CPUs from 2017: https://minimaxir.com/2017/07/cpu-or-gpu/
"""

from __future__ import annotations

from polybench.render.sweep_points import format_point, label_titles, row_labels, sort_points
from polybench.render.tables import format_table
from polybench.schema import units
from polybench.schema.measurements import PointResult, SweepDocument

_TITLES = ["$/hour", "epoch time", "relative time", "cost", "relative cost"]

CostTable = tuple[str, list[str], list[list[str]], int]
"""Title, column titles, rows, and the number of text columns on the left."""


def cost_table(sweep: SweepDocument) -> CostTable | None:
    """Build a table of the measured points, in the order of the sweep's table; None without any price."""
    measured = [(point, one) for point, one in sort_points(sweep) if one.epoch_seconds is not None]
    if all(result.dollars_per_epoch is None for _, result in measured):
        return None
    reference, labels = sweep.reference, label_titles(sweep)
    relative = f", relative to {reference.configuration} at {format_point(reference.parameters)}" if reference else ""
    rows = [[*row_labels(point, result), *_values(result)] for point, result in measured]
    return f"Time and cost per epoch{relative}", [*labels, *_TITLES], rows, len(labels)


def format_cost_table(table: CostTable, *, markdown: bool) -> str:
    """Format the table as text, below its title."""
    title, titles, rows, text_columns = table
    return f"{title}\n\n{format_table(titles, rows, text_columns=text_columns, markdown=markdown)}"


def cheapest_epoch(sweep: SweepDocument) -> str | None:
    """Describe the point with the cheapest epoch; None without any price."""
    priced = [
        (result.dollars_per_epoch, result.configuration, point.parameters)
        for point in sweep.points
        for result in point.configurations
        if result.dollars_per_epoch is not None
    ]
    if not priced:
        return None
    dollars, configuration, parameters = min(priced, key=lambda one: one[0])
    return f"cheapest epoch: {configuration} at {format_point(parameters)}: ${units.format_number(dollars)}"


def _values(result: PointResult) -> list[str]:
    return [
        "" if result.dollars_per_hour is None else units.format_number(result.dollars_per_hour),
        "" if result.epoch_seconds is None else units.format_seconds(result.epoch_seconds),
        "" if result.relative_time is None else units.format_number(result.relative_time),
        "" if result.dollars_per_epoch is None else f"${units.format_number(result.dollars_per_epoch)}",
        "" if result.relative_cost is None else units.format_number(result.relative_cost),
    ]
