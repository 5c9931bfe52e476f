"""Section of a report about a sweep or an overhead: curves, results and the studies of the points."""

from __future__ import annotations

from typing import Any

from polybench.html_report.page import View, environment_rows, figure_views, format_command
from polybench.render import overhead as overhead_table
from polybench.render import sweep as sweep_table
from polybench.render.table import Table, TableOptions, name_text
from polybench.schema import units
from polybench.schema.measurements import OverheadDocument, PointReference, PointResult, SweepDocument, SweepPoint


def build_sweep_view(sweep: SweepDocument, number: int) -> View:
    """Build the texts of the section with this number; its element IDs in the page start with `id`."""
    table = sweep_table.points_table(sweep, TableOptions(published=True))
    return _view(sweep, number, table) | {
        "title": sweep_title(sweep),
        "headline": headline(sweep),
        "header_lines": [*_header_lines(sweep, table), *(_axis(*axis) for axis in sweep.axes.items())],
        "all_figures": list(figure_views({"sweep": sweep}, f"s{number}")),
        "configurations": [result.configuration for _, result in sweep_table.sort_points(sweep)],
        "labels": [_label(sweep, *one) for one in sweep_table.sort_points(sweep)],
        "points": [(units.format_point(point.parameters), point.id) for point in sweep.points],
    }


def build_overhead_view(overhead: OverheadDocument, number: int) -> View:
    """Build the texts of the section about an overhead."""
    table = overhead_table.table(overhead)
    return _view(overhead, number, table) | {
        "title": sweep_title(overhead),
        "headline": overhead_headline(overhead),
        "header_lines": [*_header_lines(overhead, table), _axis("batch_size", overhead.batch_sizes)],
        "all_figures": list(figure_views({"overhead": overhead}, f"s{number}")),
        "configurations": [one.configuration for one in overhead.configurations],
        "points": [
            (f"batch size {size:,}", study) for size, study in zip(overhead.batch_sizes, overhead.studies, strict=False)
        ],
    }


def _view(document: Any, number: int, table: Table) -> View:
    return {
        "template": "sweep.html.j2",
        "labels": [],
        "id": f"s{number}",
        "study": document,
        "summary": table.summary,
        "table": table,
        "notes": table.notes,
        "published": table.published,
        "command": format_command(document.argv),
        "environment": environment_rows(document.host, document.polybench),
    }


def _header_lines(document: SweepDocument | OverheadDocument, table: Table) -> list[str]:
    """Return the tags and the workload; the title is above the headline."""
    return [*filter(None, [name_text(None, document.tags)]), table.title[-1]]


def sweep_title(document: SweepDocument | OverheadDocument) -> str:
    """Return the title of a sweep, or its network and axes."""
    if isinstance(document, OverheadDocument):
        return document.title or f"{units.format_model(document.model, document.pass_)}, overhead of a step"
    axes = " and ".join(axis.replace("_", " ") for axis in document.axes)
    return document.title or f"{units.format_model(document.model, document.pass_)} over {axes}"


def _label(sweep: SweepDocument, point: SweepPoint, result: PointResult) -> str:
    """Return the mark of a row: of the point with the highest throughput, and of those without a difference to it."""
    if sweep.inconclusive_reason or PointReference(result.configuration, point.parameters) not in sweep.fastest:
        return ""
    return "fastest" if len(sweep.fastest) == 1 else "among the fastest"


def headline(sweep: SweepDocument) -> str:
    """Describe the point with the highest throughput of all configurations."""
    curves = {curve.configuration: curve for curve in sweep.curves}
    if not sweep.fastest:
        return "Nothing was measured."
    if sweep.inconclusive_reason:
        return f"Cannot tell: {sweep.inconclusive_reason}."
    best, *others = sweep.fastest
    rate = units.format_count(round(curves[best.configuration].best_items_per_second))
    point = units.format_point(best.parameters)
    text = f"{best.configuration} has the highest throughput: {rate} {sweep.input_kind}s/s ({point})"
    same = [f"{one.configuration} ({units.format_point(one.parameters)})" for one in others]
    return f"{text}; no significant difference to {', '.join(same)}." if same else f"{text}."


def overhead_headline(overhead: OverheadDocument) -> str:
    """List the overheads of all configurations whose step times are linear in the batch size."""
    fitted = [
        f"{one.configuration} {units.format_seconds(one.overhead_seconds)}"
        for one in overhead.configurations
        if one.overhead_seconds is not None and one.is_linear
    ]
    return f"Overhead of a step: {', '.join(fitted)}." if fitted else "No step time is linear in the batch size."


def _axis(name: str, values: list[int]) -> str:
    return f"{name.replace('_', ' ')} {', '.join(map(units.format_count, values))}"
