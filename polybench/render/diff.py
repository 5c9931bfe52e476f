"""Comparison of two studies as text: changes first, then a verdict for each configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

from polybench.render import INTERVALS, one_line
from polybench.render.tables import format_csv, format_table, wrap
from polybench.schema import units
from polybench.schema.analyses import Changed, DiffDocument, DiffRow, StudyInfo, Verdict
from polybench.schema.encoding import encode

_MAX_VALUE_WIDTH = 60
"""Characters of a changed value; JSON contains the whole value."""

HEADER = ["engine", "A", "B", "speedup of B", "verdict"]
UNCHANGED = "no changes in settings, machine, versions or environment"


def render(document: DiffDocument, format: str) -> str:
    """Render in one of render.RECORD_FORMATS, as text that ends with a newline."""
    if format == "json":
        return encode(document).decode()
    if format == "csv":
        return _csv(document)
    line_break = "  \n" if format == "markdown" else "\n"
    studies = line_break.join([_study_line("A", document.a), _study_line("B", document.b)])
    rows = [diff_row(row) for row in document.rows]
    table = format_table(HEADER, rows, text_columns=1, markdown=format == "markdown")
    changes = diff_changes(document)
    change_list = "\n".join(["Changes:", *(f"- {change}" for change in changes)]) if changes else UNCHANGED
    blocks = [studies, change_list, table, "\n".join(map(wrap, diff_notes(document)))]
    return "\n\n".join(blocks) + "\n"


def _study_line(name: str, study: StudyInfo) -> str:
    title = f", {one_line(study.title)}" if study.title else ""
    return f"{name}: {study.id} on {one_line(study.hostname)}, {study.created}{title}"


def diff_changes(document: DiffDocument) -> list[str]:
    """List changes of the whole study, then those of rows; identical changes of several rows share a line."""
    row_changes: dict[tuple[str, str], list[str]] = {}
    for row in document.rows:
        for name, pair in row.changed.items():
            row_changes.setdefault((name, _arrow(name, *pair)), []).append(row.configuration)
    return [
        *(f"{name}: {_arrow(name, *pair)}" for name, pair in document.changed.items()),
        *(f"{', '.join(configurations)}: {name}: {arrow}" for (name, arrow), configurations in row_changes.items()),
    ]


def _arrow(name: str, old: Any, new: Any) -> str:
    return f"{_format_value(name, old)} -> {_format_value(name, new)}"


def _format_value(name: str, value: Any) -> str:
    if value is None or value == []:
        return "none"
    if name == "peak":
        return f"{value / 1e9:.3g} GFLOP/s"
    if name.endswith("_bytes"):
        return units.format_bytes(value)
    if isinstance(value, dict):
        value = ", ".join(f"{key} {item}" for key, item in value.items() if item not in (None, [], 0.0))
    elif isinstance(value, list | tuple):
        value = ", ".join(map(str, value))
    text = one_line(str(value))
    return text if len(text) <= _MAX_VALUE_WIDTH else f"{text[: _MAX_VALUE_WIDTH - 1]}…"


def diff_row(row: DiffRow) -> list[str]:
    """Format a row of the table with the columns of HEADER."""
    seconds = ["" if value is None else units.format_seconds(value) for value in row.step_seconds]
    ratio = "" if row.ratio is None else units.format_with_ci(row.ratio, row.ci95)
    return [row.configuration, *seconds, ratio, row.verdict]


def diff_notes(document: DiffDocument) -> Iterator[str]:
    """Yield reasons for rows that are not comparable, the number of each verdict, and warnings."""
    for row in document.rows:
        if row.reason:
            yield f"{row.configuration}: not comparable: {row.reason}"
    counts = Counter(row.verdict for row in document.rows)
    yield (
        ", ".join(f"{counts[verdict]} {verdict}" for verdict in get_args(Verdict) if counts[verdict])
        + f"; tolerance {100 * document.tolerance:g}%; {INTERVALS}; expected false verdicts: at most 5%"
    )
    yield from document.warnings


def _csv(document: DiffDocument) -> str:
    header = ["configuration", "verdict", "reason", "step_seconds_a", "step_seconds_b"]
    header += ["ratio", "low", "high", "q_value", "machine_drift_ratio", "corrected_ratio", "changed"]
    rows = [
        [
            row.configuration,
            row.verdict,
            row.reason,
            *row.step_seconds,
            row.ratio,
            *(row.ci95 or (None, None)),
            row.q_value,
            row.machine_drift_ratio,
            row.corrected_ratio,
            "; ".join(_format_changes(row.changed)),
        ]
        for row in document.rows
    ]
    return format_csv(header, rows)


def _format_changes(changed: Changed) -> Iterator[str]:
    yield from (f"{name}: {_arrow(name, *pair)}" for name, pair in changed.items())
