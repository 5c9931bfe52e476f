"""A sweep of a page: curves, where each cell is best, and the table."""

from __future__ import annotations

from typing import NamedTuple

from polybench.core import units
from polybench.core.document.sweep import SweepDocument
from polybench.export import published
from polybench.export.pools import matrix_of
from polybench.export.sweep import best_of, heading_of, notes_of, table_of
from polybench.export.sweep_costs import cost_table
from polybench.page.circumstances import command_of, environment_of
from polybench.page.figures import Shown, figures_of


class SweepView(NamedTuple):
    """Everything that a chapter of the page says, as texts; `id` begins the names of its places.

    `more` are tables below the first: a title, a header, rows, and how many of the first columns are words.
    """

    id: str
    study: SweepDocument
    title: str
    headline: str
    heading: list[str]
    sentences: list[str]
    header: list[str]
    rows: list[list[str]]
    words: int
    more: list[tuple[str, list[str], list[list[str]], int]]
    figures: list[Shown]
    notes: list[str]
    published: list[list[str]]
    published_header: list[str]
    sources: list[str]
    command: str
    points: list[tuple[str, str]]
    environment: list[tuple[str, str]]
    template: str = "sweep.html.j2"

    @property
    def drawn(self) -> list[Shown]:
        """All figures."""
        return self.figures


def view_of_sweep(sweep: SweepDocument, number: int) -> SweepView:
    """The chapter of this number."""
    place, table, costs = f"s{number}", table_of(sweep), cost_table(sweep)
    here = published.of_sweep(sweep.points)
    best = [best_of(curve, sweep.unit) for curve in sweep.curves]
    return SweepView(
        id=place,
        study=sweep,
        title=title_of(sweep),
        headline=headline(sweep),
        heading=[*heading_of(sweep), ", ".join(_axis(*axis) for axis in sweep.axes.items())],
        sentences=best,
        header=table.header,
        rows=table.rows,
        words=table.words,
        more=[*([costs] if costs else []), *((*matrix_of(matrix), 1) for matrix in sweep.pools)],
        figures=list(figures_of({"sweep": sweep}, place)),
        notes=[note for note in notes_of(sweep) if note not in best],
        published=published.rows(sweep.published, here),
        published_header=published.header(sweep.published, here),
        sources=published.notes(sweep.published, here),
        command=command_of(sweep.argv),
        points=[(_point(point.values), point.id) for point in sweep.points],
        environment=environment_of(sweep.host, sweep.polybench),
    )


def title_of(sweep: SweepDocument) -> str:
    """Its title, or else what was varied."""
    axes = " and ".join(axis.replace("_", " ") for axis in sweep.axes)
    return sweep.title or f"{sweep.model} over {axes}"


def headline(sweep: SweepDocument) -> str:
    """Where most images or sequences a second are trained, of all cells."""
    best = max(sweep.curves, key=lambda curve: curve.best_samples_per_second, default=None)
    if best is None:
        return "Nothing was measured."
    rate = units.count(round(best.best_samples_per_second))
    return f"{best.cell} trains most: {rate} {sweep.unit}s a second ({_point(best.best)})."


def _point(values: dict[str, int]) -> str:
    return ", ".join(f"{axis.replace('_', ' ')} {units.count(value)}" for axis, value in values.items())


def _axis(name: str, values: list[int]) -> str:
    return f"{name.replace('_', ' ')} {', '.join(map(units.count, values))}"
