"""A sweep as text: every cell at every point, and below it where each is best."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from polybench.core import units
from polybench.core.document.sweep import Curve, SweepDocument, SweepPoint, SweptCell
from polybench.export.records import comma_separated, laid_out, wrapped

_NUMBERS = ("seconds_per_step", "samples_per_second", "speedup", "low", "high", "efficiency")


def render(sweep: SweepDocument, format: str) -> str:
    """Text that ends with a newline; `format` is one of export.RECORD_FORMATS."""
    if format == "json":
        return msgspec.json.format(msgspec.json.encode(sweep), indent=1).decode() + "\n"
    if format == "csv":
        return _csv(sweep)
    axes = [axis.replace("_", " ") for axis in sweep.axes]
    by_threads = "threads" in sweep.axes
    header = [*axes, "cell", "step time", "images/s", "speedup", *(["efficiency"] if by_threads else [])]
    cells = [(point, cell) for point in sweep.points for cell in point.cells]
    order = {curve.cell: number for number, curve in enumerate(sweep.curves)}
    cells.sort(key=lambda one: order.get(one[1].cell, len(order)))
    lines = [_line(point, cell, by_threads) for point, cell in cells]
    notes = [wrapped(text) for text in (*_sentences(sweep), *sweep.warnings)]
    table = laid_out(header, lines, left=len(axes) + 1, markdown=format == "markdown")
    threads = "" if by_threads or not sweep.points else f" on {sweep.host.cpu}"
    return "\n\n".join([f"{sweep.model}{threads}", table, "\n".join(notes)]) + "\n"


def _line(point: SweepPoint, cell: SweptCell, by_threads: bool) -> list[str]:
    values = [units.count(value) for value in point.values.values()]
    if cell.seconds_per_step is None or cell.samples_per_second is None or cell.speedup is None:
        return [*values, cell.cell, cell.status, "", "", *([""] if by_threads else [])]
    efficiency = "" if cell.efficiency is None else units.percent(cell.efficiency)
    return [
        *values,
        cell.cell,
        units.seconds(cell.seconds_per_step),
        units.count(round(cell.samples_per_second)),
        units.with_interval(cell.speedup, cell.interval95),
        *([efficiency] if by_threads else []),
    ]


def _sentences(sweep: SweepDocument) -> Iterator[str]:
    yield "speedup: images a second, against the cell's first row; intervals: 95%, over fresh processes"
    for curve in sweep.curves:
        yield _best(curve)
    crowded = [point for point in sweep.points if point.oversubscribed]
    if crowded:
        threads = ", ".join(dict.fromkeys(units.count(point.values["threads"]) for point in crowded))
        yield f"more threads than usable cores: {threads}; such steps are slow and uneven"
    for point in sweep.points:
        for cell in point.cells:
            if cell.reason:
                yield f"{cell.cell}: {cell.status}: {cell.reason}"


def _best(curve: Curve) -> str:
    at = ", ".join(f"{axis.replace('_', ' ')} {units.count(value)}" for axis, value in curve.best.items())
    text = f"{curve.cell}: most images a second at {at}: {units.count(round(curve.best_samples_per_second))}"
    (axis, best), *others = curve.best.items()
    if curve.knee is not None and not others and curve.knee != best:
        text += f"; 90% of that from {axis.replace('_', ' ')} {units.count(curve.knee)} on"
    return text


def _csv(sweep: SweepDocument) -> str:
    header = [*sweep.axes, "cell", "status", *_NUMBERS, "study"]
    lines = [
        [
            *point.values.values(),
            cell.cell,
            cell.status,
            cell.seconds_per_step,
            cell.samples_per_second,
            cell.speedup,
            *(cell.interval95 or (None, None)),
            cell.efficiency,
            point.id,
        ]
        for point in sweep.points
        for cell in point.cells
    ]
    return comma_separated(header, lines)
