"""Section of a report about two recorded trainings: the verdict, causes, and errors over steps and layers."""

from __future__ import annotations

import contextlib

from polybench.figures.figure import NoData
from polybench.figures.trace_errors import draw_steps, draw_tensors
from polybench.html_report.page import View, convert_figure
from polybench.render import trace as trace_table
from polybench.schema.trace import TraceDiffDocument


def build_trace_view(document: TraceDiffDocument, number: int) -> View:
    """Build the texts of the section with this number; its element IDs in the page start with `id`."""
    table = trace_table.table(document)
    figures = []
    for name, draw in {"steps": draw_steps, "layers": draw_tensors}.items():
        with contextlib.suppress(NoData):
            figures.append(convert_figure(draw(document), name, "trace", f"s{number}"))
    return {
        "template": "trace.html.j2",
        "title": "Two recorded trainings",
        "id": f"s{number}",
        "study": document,
        "headline": f"{document.causes[0].cause}." if document.causes else document.verdict,
        "header_lines": [*table.title, document.verdict],
        "summary": [],
        "table": table,
        "notes": table.notes,
        "all_figures": figures,
    }
