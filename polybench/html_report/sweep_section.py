"""Section of a report about a sweep: curves, best points and tables."""

from __future__ import annotations

from typing import NamedTuple

from polybench.html_report.environment_table import environment_rows, format_command
from polybench.html_report.figures import FigureView, figure_views
from polybench.render import published_results
from polybench.render.sweep import best_point, build_table, header_lines, sweep_notes
from polybench.render.sweep_costs import cost_table
from polybench.render.thread_pool_grid import grid_table
from polybench.schema import units
from polybench.schema.measurements import SweepDocument


class SweepView(NamedTuple):
    """All texts of a section; element IDs in the page start with `id`.

    Attributes:
        further_tables: title, column titles, rows and number of text columns of each.
    """

    id: str
    study: SweepDocument
    title: str
    headline: str
    header_lines: list[str]
    summary: list[str]
    column_titles: list[str]
    rows: list[list[str]]
    text_columns: int
    further_tables: list[tuple[str, list[str], list[list[str]], int]]
    figures: list[FigureView]
    notes: list[str]
    published: list[list[str]]
    published_titles: list[str]
    sources: list[str]
    command: str
    points: list[tuple[str, str]]
    environment: list[tuple[str, str]]
    template: str = "sweep.html.j2"

    @property
    def all_figures(self) -> list[FigureView]:
        """All figures of the section."""
        return self.figures


def build_sweep_view(sweep: SweepDocument, number: int) -> SweepView:
    """Build the texts of the section with this number."""
    section_id, table, costs = f"s{number}", build_table(sweep), cost_table(sweep)
    measured = published_results.from_sweep(sweep.points)
    best = [best_point(curve, sweep.input_kind) for curve in sweep.curves]
    return SweepView(
        id=section_id,
        study=sweep,
        title=sweep_title(sweep),
        headline=headline(sweep),
        header_lines=[*header_lines(sweep), ", ".join(_axis(*axis) for axis in sweep.axes.items())],
        summary=best,
        column_titles=table.column_titles,
        rows=table.rows,
        text_columns=table.text_columns,
        further_tables=[
            *([costs] if costs else []),
            *((*grid_table(grid), 1) for grid in sweep.thread_pools),
        ],
        figures=list(figure_views({"sweep": sweep}, section_id)),
        notes=[note for note in sweep_notes(sweep) if note not in best],
        published=published_results.format_rows(sweep.published, measured),
        published_titles=published_results.column_titles(sweep.published, measured),
        sources=published_results.format_notes(sweep.published, measured),
        command=format_command(sweep.argv),
        points=[(_point(point.parameters), point.id) for point in sweep.points],
        environment=environment_rows(sweep.host, sweep.polybench),
    )


def sweep_title(sweep: SweepDocument) -> str:
    """Return the title of a sweep, or its network and axes."""
    axes = " and ".join(axis.replace("_", " ") for axis in sweep.axes)
    return sweep.title or f"{sweep.model} over {axes}"


def headline(sweep: SweepDocument) -> str:
    """Describe the point with the highest throughput of all configurations."""
    best = max(sweep.curves, key=lambda curve: curve.best_items_per_second, default=None)
    if best is None:
        return "Nothing was measured."
    rate = units.format_count(round(best.best_items_per_second))
    point = _point(best.best)
    return f"{best.configuration} has the highest throughput: {rate} {sweep.input_kind}s/s ({point})."


def _point(parameters: dict[str, int]) -> str:
    return ", ".join(f"{axis.replace('_', ' ')} {units.format_count(value)}" for axis, value in parameters.items())


def _axis(name: str, values: list[int]) -> str:
    return f"{name.replace('_', ' ')} {', '.join(map(units.format_count, values))}"
