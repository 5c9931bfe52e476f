"""Section of a report about a sweep: curves, best points and tables."""

from __future__ import annotations

from polybench.html_report.page import View, environment_rows, figure_views, format_command
from polybench.render import sweep as sweep_table
from polybench.render.table import TableOptions
from polybench.schema import units
from polybench.schema.measurements import SweepDocument


def build_sweep_view(sweep: SweepDocument, number: int) -> View:
    """Build the texts of the section with this number; its element IDs in the page start with `id`."""
    section_id, table = f"s{number}", sweep_table.table(sweep, TableOptions(published=True))
    return {
        "template": "sweep.html.j2",
        "id": section_id,
        "study": sweep,
        "title": sweep_title(sweep),
        "headline": headline(sweep),
        "header_lines": [*table.title, ", ".join(_axis(*axis) for axis in sweep.axes.items())],
        "summary": table.summary,
        "table": table,
        "all_figures": list(figure_views({"sweep": sweep}, section_id)),
        "notes": table.notes,
        "published": table.published,
        "command": format_command(sweep.argv),
        "points": [(units.format_point(point.parameters), point.id) for point in sweep.points],
        "environment": environment_rows(sweep.host, sweep.polybench),
    }


def sweep_title(sweep: SweepDocument) -> str:
    """Return the title of a sweep, or its network and axes."""
    axes = " and ".join(axis.replace("_", " ") for axis in sweep.axes)
    return sweep.title or f"{sweep.model} over {axes}"


def headline(sweep: SweepDocument) -> str:
    """Describe the point with the highest throughput of all configurations."""
    curves = {curve.configuration: curve for curve in sweep.curves}
    if not sweep.fastest:
        return "Nothing was measured."
    if sweep.inconclusive_reason:
        return f"Inconclusive: {sweep.inconclusive_reason}."
    best, *others = sweep.fastest
    rate = units.format_count(round(curves[best.configuration].best_items_per_second))
    point = units.format_point(best.parameters)
    text = f"{best.configuration} has the highest throughput: {rate} {sweep.input_kind}s/s ({point})"
    same = [f"{one.configuration} ({units.format_point(one.parameters)})" for one in others]
    return f"{text}; no significant difference to {', '.join(same)}." if same else f"{text}."


def _axis(name: str, values: list[int]) -> str:
    return f"{name.replace('_', ' ')} {', '.join(map(units.format_count, values))}"
