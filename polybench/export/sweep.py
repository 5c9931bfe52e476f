"""A sweep as text: every cell at every point, and below it where each is best."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from polybench.core import units
from polybench.core.document.sweep import Curve, SweepDocument, SweepPoint, SweptCell
from polybench.export import published as of_others
from polybench.export import sweep_costs
from polybench.export.one_line import one_line
from polybench.export.pools import block
from polybench.export.records import INTERVALS, below, comma_separated, laid_out
from polybench.export.sweep_cells import CROWDED, header_of, names_of, ordered, place_of

_NUMBERS = ("seconds_per_step", "samples_per_second", "speedup", "low", "high", "efficiency")
_COSTS = ("epoch_seconds", "relative_time", "dollars_per_hour", "dollars_per_epoch", "relative_cost")


def render(sweep: SweepDocument, format: str, *, published: bool = False) -> str:
    """Text that ends with a newline; `format` is one of export.RECORD_FORMATS.

    With `published`, people see the author's own numbers below the table; JSON always has them.
    """
    if format == "json":
        return msgspec.json.format(msgspec.json.encode(sweep), indent=1).decode() + "\n"
    if format == "csv":
        return _csv(sweep)
    markdown = format == "markdown"
    found = table_of(sweep)
    table = laid_out(found.header, found.rows, left=found.words, markdown=markdown)
    authors = _published(sweep, markdown) if published and sweep.published else []
    costs = sweep_costs.cost_table(sweep)
    blocks = [sweep_costs.block(costs, markdown=markdown)] if costs else []
    blocks += [block(matrix, markdown=markdown) for matrix in sweep.pools]
    heading = ("  \n" if markdown else "\n").join(heading_of(sweep))
    notes = below(notes_of(sweep), markdown=markdown)
    return "\n\n".join([heading, table, *blocks, notes, *authors]) + "\n"


class Table(NamedTuple):
    """Every cell at every point as text, cell by cell; the first `words` columns are no numbers."""

    header: list[str]
    rows: list[list[str]]
    words: int


def table_of(sweep: SweepDocument) -> Table:
    """In the order of the curves; cells without any come last."""
    words = header_of(sweep)
    by_threads = "threads" in sweep.axes
    header = [
        *words,
        "step time",
        f"{sweep.unit}s/s",
        "speedup",
        *(["efficiency"] if by_threads else []),
    ]
    return Table(header, [_line(point, cell, by_threads) for point, cell in ordered(sweep)], len(words))


def heading_of(sweep: SweepDocument) -> list[str]:
    """Its title, if it has one; the network, and the machine."""
    by_threads = "threads" in sweep.axes or not sweep.points
    title = [one_line(sweep.title)] if sweep.title else []
    return [*title, sweep.model if by_threads else f"{sweep.model} on {sweep.host.cpu}"]


def notes_of(sweep: SweepDocument) -> list[str]:
    """What stands below the table: where each cell is best, what failed, and warnings."""
    return [*_sentences(sweep), *sweep.warnings]


def _published(sweep: SweepDocument, markdown: bool) -> list[str]:
    """A block of its own, so that nobody takes it for measured here."""
    here = of_others.of_sweep(sweep.points)
    header = of_others.header(sweep.published, here)
    rows = of_others.rows(sweep.published, here)
    table = laid_out(header, rows, left=len(header), markdown=markdown)
    return [of_others.TITLE, table, below(of_others.notes(sweep.published, here), markdown=markdown)]


def _line(point: SweepPoint, cell: SweptCell, by_threads: bool) -> list[str]:
    names = names_of(point, cell)
    if cell.seconds_per_step is None or cell.samples_per_second is None or cell.speedup is None:
        return [*names, cell.status, "", "", *([""] if by_threads else [])]
    efficiency = "" if cell.efficiency is None else units.percent(cell.efficiency)
    return [
        *names,
        units.seconds(cell.seconds_per_step),
        units.count(round(cell.samples_per_second)),
        units.with_interval(cell.speedup, cell.interval95),
        *([efficiency] if by_threads else []),
    ]


def _sentences(sweep: SweepDocument) -> Iterator[str]:
    rate = f"{sweep.unit}s a second"
    known = any(cell.interval95 for point in sweep.points for cell in point.cells)
    yield f"speedup: {rate}, against the cell's first row" + (f"; {INTERVALS}" if known else "")
    for curve in sweep.curves:
        yield best_of(curve, sweep.unit)
    if (cheapest := sweep_costs.cheapest(sweep)) is not None:
        yield cheapest
    if any(point.oversubscribed for point in sweep.points):
        yield f"{CROWDED} more threads than usable cores; such steps are slow and uneven"
    for point in sweep.points:
        for cell in point.cells:
            if cell.reason:
                yield f"{cell.cell}: {cell.status}: {cell.reason}"


def best_of(curve: Curve, unit: str) -> str:
    """Where the cell trains most images or sequences a second, and from where on more brings little."""
    rate = units.count(round(curve.best_samples_per_second))
    text = f"{curve.cell}: most {unit}s a second at {place_of(curve.best)}: {rate}"
    (axis, best), *others = curve.best.items()
    if curve.knee is not None and not others and curve.knee != best:
        text += f"; 90% of that from {axis.replace('_', ' ')} {units.count(curve.knee)} on"
    return text


def _csv(sweep: SweepDocument) -> str:
    header = [*sweep.axes, "cell", "status", *_NUMBERS, *_COSTS, "oversubscribed", "study"]
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
            *(getattr(cell, name) for name in _COSTS),
            int(point.oversubscribed),
            point.id,
        ]
        for point in sweep.points
        for cell in point.cells
    ]
    return comma_separated(header, lines)
