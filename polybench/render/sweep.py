"""A sweep as text: every configuration at every point, then the best points."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from polybench.render import INTERVALS, one_line, published_results, sweep_costs
from polybench.render.sweep_points import OVERSUBSCRIBED, format_point, label_titles, row_labels, sort_points
from polybench.render.tables import format_csv, format_notes, format_table
from polybench.render.thread_pool_grid import format_grid
from polybench.schema import units
from polybench.schema.measurements import Curve, PointResult, SweepDocument, SweepPoint

_NUMBERS = ("step_seconds", "items_per_second", "speedup", "low", "high", "efficiency")
_COSTS = ("epoch_seconds", "relative_time", "dollars_per_hour", "dollars_per_epoch", "relative_cost")


def render(sweep: SweepDocument, format: str, *, published: bool = False) -> str:
    """Render in one of render.RECORD_FORMATS, as text that ends with a newline.

    Args:
        sweep: the document.
        format: JSON always contains published results, CSV never.
        published: add published results below a table.
    """
    if format == "json":
        return msgspec.json.format(msgspec.json.encode(sweep), indent=1).decode() + "\n"
    if format == "csv":
        return _csv(sweep)
    markdown = format == "markdown"
    built = build_table(sweep)
    table = format_table(built.column_titles, built.rows, text_columns=built.text_columns, markdown=markdown)
    published_blocks = _published(sweep, markdown) if published and sweep.published else []
    costs = sweep_costs.cost_table(sweep)
    blocks = [sweep_costs.format_cost_table(costs, markdown=markdown)] if costs else []
    blocks += [format_grid(grid, markdown=markdown) for grid in sweep.thread_pools]
    header = ("  \n" if markdown else "\n").join(header_lines(sweep))
    notes = format_notes(sweep_notes(sweep), markdown=markdown)
    return "\n\n".join([header, table, *blocks, notes, *published_blocks]) + "\n"


class SweepTable(NamedTuple):
    """Text of every configuration at every point; the first `text_columns` columns are labels."""

    column_titles: list[str]
    rows: list[list[str]]
    text_columns: int


def build_table(sweep: SweepDocument) -> SweepTable:
    """Build the table in the order of the curves; configurations without a curve come last."""
    labels = label_titles(sweep)
    by_threads = "threads" in sweep.axes
    titles = [
        *labels,
        "step time",
        f"{sweep.input_kind}s/s",
        "speedup",
        *(["efficiency"] if by_threads else []),
    ]
    rows = [_row(point, result, by_threads) for point, result in sort_points(sweep)]
    return SweepTable(titles, rows, len(labels))


def header_lines(sweep: SweepDocument) -> list[str]:
    """Describe the sweep: its title, if it has one, the network and the machine."""
    by_threads = "threads" in sweep.axes or not sweep.points
    title = [one_line(sweep.title)] if sweep.title else []
    return [*title, sweep.model if by_threads else f"{sweep.model} on {sweep.host.cpu}"]


def sweep_notes(sweep: SweepDocument) -> list[str]:
    """Collect the notes below the table: best points, failures and warnings."""
    return [*_notes(sweep), *sweep.warnings]


def _published(sweep: SweepDocument, markdown: bool) -> list[str]:
    """Format the published results as a separate block."""
    measured = published_results.from_sweep(sweep.points)
    titles = published_results.column_titles(sweep.published, measured)
    rows = published_results.format_rows(sweep.published, measured)
    table = format_table(titles, rows, text_columns=len(titles), markdown=markdown)
    notes = published_results.format_notes(sweep.published, measured)
    return [published_results.TITLE, table, format_notes(notes, markdown=markdown)]


def _row(point: SweepPoint, result: PointResult, by_threads: bool) -> list[str]:
    labels = row_labels(point, result)
    if result.step_seconds is None or result.items_per_second is None or result.speedup is None:
        return [*labels, result.status, "", "", *([""] if by_threads else [])]
    efficiency = "" if result.efficiency is None else units.format_percent(result.efficiency)
    return [
        *labels,
        units.format_seconds(result.step_seconds),
        units.format_count(round(result.items_per_second)),
        units.format_with_ci(result.speedup, result.ci95),
        *([efficiency] if by_threads else []),
    ]


def _notes(sweep: SweepDocument) -> Iterator[str]:
    has_intervals = any(result.ci95 for point in sweep.points for result in point.configurations)
    yield (
        f"speedup: {sweep.input_kind}s/s relative to the first row of the engine"
        f"{f'; {INTERVALS}' if has_intervals else ''}"
    )
    for curve in sweep.curves:
        yield best_point(curve, sweep.input_kind)
    if (cheapest := sweep_costs.cheapest_epoch(sweep)) is not None:
        yield cheapest
    if any(point.oversubscribed for point in sweep.points):
        yield f"{OVERSUBSCRIBED} more threads than usable cores; step times are long and vary"
    for point in sweep.points:
        for result in point.configurations:
            if result.reason:
                yield f"{result.configuration}: {result.status}: {result.reason}"


def best_point(curve: Curve, input_kind: str) -> str:
    """Describe the point with the highest throughput, and the point that reaches 90 % of it."""
    rate = units.format_count(round(curve.best_items_per_second))
    text = f"{curve.configuration}: highest throughput {rate} {input_kind}s/s, at {format_point(curve.best)}"
    (axis, best), *others = curve.best.items()
    if curve.knee is not None and not others and curve.knee != best:
        text += f"; at least 90% of it at {axis.replace('_', ' ')} {units.format_count(curve.knee)}"
    return text


def _csv(sweep: SweepDocument) -> str:
    header = [*sweep.axes, "configuration", "status", *_NUMBERS, *_COSTS, "oversubscribed", "study"]
    rows = [
        [
            *point.parameters.values(),
            result.configuration,
            result.status,
            result.step_seconds,
            result.items_per_second,
            result.speedup,
            *(result.ci95 or (None, None)),
            result.efficiency,
            *(getattr(result, name) for name in _COSTS),
            int(point.oversubscribed),
            point.id,
        ]
        for point in sweep.points
        for result in point.configurations
    ]
    return format_csv(header, rows)
