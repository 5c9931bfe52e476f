"""Comparison of two studies: changes first, then a verdict for each configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, get_args

from polybench.render.table import DEFAULTS, INTERVALS, Column, Records, Table, TableOptions, number_columns, one_line
from polybench.schema import units
from polybench.schema.analyses import Changed, DiffDocument, DiffRow, StudyInfo, Verdict
from polybench.schema.result import mark_inconclusive

_MAX_VALUE_WIDTH = 60
"""Characters of a changed value; JSON contains the whole value."""

UNCHANGED = "no changes in settings, machine, versions or environment"


def table(document: DiffDocument, _: TableOptions = DEFAULTS) -> Table:
    """Build a row per configuration, below the changes between the studies."""
    changed = changes(document)
    return Table(
        title=[_study_line("A", document.a), _study_line("B", document.b)],
        tables=[Table(title=["Changes:"], notes=changed) if changed else Table(title=[UNCHANGED]), verdicts(document)],
    )


def verdicts(document: DiffDocument) -> Table:
    """Build a row per configuration, whose last text is the verdict."""
    corrected = ["without drift"] if any(row.controls for row in document.rows) else []
    return Table(
        columns=[Column("engine"), *number_columns("A", "B", "speedup of B", *corrected), Column("verdict")],
        rows=[_row(row, len(corrected)) for row in document.rows],
        notes=list(_notes(document)),
    )


def records(document: DiffDocument, _: TableOptions) -> Records:
    """List a record per configuration."""
    fields = ["configuration", "verdict", "reason", "step_seconds_a", "step_seconds_b"]
    fields += ["ratio", "low", "high", "q_value", "machine_drift_ratio", "corrected_ratio", "corrected_low"]
    fields += ["corrected_high", "spread", "repetitions", "changed"]
    rows = [
        [
            *(row.configuration, row.verdict, row.reason, *row.step_seconds, row.ratio, *(row.ci95 or (None, None))),
            *(row.q_value, row.machine_drift_ratio, row.corrected_ratio, *(row.corrected_ci95 or (None, None))),
            *((row.spread.std, row.spread.repetitions) if row.spread else (None, None)),
            "; ".join(_format_changes(row.changed)),
        ]
        for row in document.rows
    ]
    return Records(fields, rows)


def _study_line(name: str, study: StudyInfo) -> str:
    title = f", {one_line(study.title)}" if study.title else ""
    return f"{name}: {study.id} on {one_line(study.hostname)}, {study.created}{title}"


def changes(document: DiffDocument) -> list[str]:
    """List changes of the whole study, then those of rows; identical changes of several rows share a line."""
    row_changes: dict[str, list[str]] = {}
    for row in document.rows:
        for change in _format_changes(row.changed):
            row_changes.setdefault(change, []).append(row.configuration)
    return [
        *_format_changes(document.changed),
        *(f"{', '.join(configurations)}: {change}" for change, configurations in row_changes.items()),
    ]


def _format_changes(changed: Changed) -> Iterator[str]:
    for name, (old, new) in changed.items():
        yield f"{name}: {_format_value(name, old)} -> {_format_value(name, new)}"


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


def _row(row: DiffRow, corrected_columns: int) -> list[str]:
    seconds = ["" if value is None else units.format_seconds(value) for value in row.step_seconds]
    ratio = "" if row.ratio is None else units.format_with_ci(row.ratio, row.ci95)
    ratio = mark_inconclusive(ratio, row.reason if row.q_value is None else None)
    corrected = (
        units.format_with_ci(row.corrected_ratio, row.corrected_ci95) if row.controls and row.corrected_ratio else ""
    )
    return [row.configuration, *seconds, ratio, *[corrected] * corrected_columns, row.verdict]


def _notes(document: DiffDocument) -> Iterator[str]:
    """Yield reasons for rows without a verdict, the number of each verdict, and warnings."""
    reasons: dict[str, list[str]] = {}
    for row in document.rows:
        if row.reason:
            reasons.setdefault(f"{row.verdict}: {row.reason}", []).append(row.configuration)
    for reason, configurations in reasons.items():
        yield f"{', '.join(configurations)}: {reason}"
    counts = Counter(row.verdict for row in document.rows)
    yield (
        ", ".join(f"{counts[verdict]} {verdict}" for verdict in get_args(Verdict) if counts[verdict])
        + f"; tolerance {100 * document.tolerance:g}%; {INTERVALS}, with the spread between studies;"
        " expected false verdicts: at most 5%"
    )
    spreads: dict[str, list[str]] = {}
    for row in document.rows:
        if row.spread:
            spreads.setdefault(row.spread.description, []).append(row.configuration)
    for text, configurations in spreads.items():
        yield f"{', '.join(configurations)}: spread between studies in the interval of the verdict: {text}"
    yield from (text for text in document.warnings if text not in reasons)
