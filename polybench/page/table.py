"""The table of a study for a page: every column that has a value, the important ones shown at first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polybench.core import units
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.export.footnotes import failed_parity
from polybench.export.rows import outcome
from polybench.metrics import DEFAULT_COLUMNS, GROUPS, METRICS
from polybench.metrics.base import Metric

_SHOWN = 7
"""Columns at first: what a wide screen holds."""


class Column(NamedTuple):
    """One metric.

    Attributes:
        better: which direction is, for its hint; "" where there is none.
        note: what the title does not say, with the unit in which it is sorted.
    """

    name: str
    title: str
    note: str
    better: str
    numeric: bool
    shown: bool


class Value(NamedTuple):
    """What a cell of the table shows, and by what it is sorted: a number, a word, "" for nothing."""

    text: str
    key: str


class Row(NamedTuple):
    """One cell of the study.

    Attributes:
        kind: `ranked`, `unranked` or `absent`, in which order they stay when sorted.
        outcome: why it has no times; "" where it has.
    """

    cell: str
    kind: str
    values: list[Value]
    outcome: str


class Table(NamedTuple):
    """Columns by group, each group once, and rows."""

    groups: list[tuple[str, list[Column]]]
    columns: list[Column]
    rows: list[Row]


def table_of(study: StudyDocument) -> Table:
    """All rows, in the order of measurement."""
    measured = [result for result in study.results if result.measured]
    known = [metric for metric in METRICS.values() if any(metric.value(one) is not None for one in measured)]
    names = {metric.name for metric in known}
    shown = [name for name in DEFAULT_COLUMNS if name in names][:_SHOWN]
    unit = study.settings.unit
    columns = [_column(metric, metric.name in shown, unit) for metric in known]
    return Table(
        groups=list(_grouped(columns)),
        columns=columns,
        rows=sorted((_row(result, known) for result in study.results), key=lambda row: _ORDER[row.kind]),
    )


_ORDER = {"ranked": 0, "unranked": 1, "absent": 2}


def _column(metric: Metric, shown: bool, unit: str) -> Column:
    title, note = metric.title, ", ".join(filter(None, (metric.unit, metric.note)))
    title, note = units.of_inputs(title, unit), units.of_inputs(note, unit)
    return Column(metric.name, title, note, metric.better or "", metric.unit is not None, shown)


def _grouped(columns: Sequence[Column]) -> list[tuple[str, list[Column]]]:
    left = {column.name: column for column in columns}
    groups = []
    for title, names in GROUPS.items():
        if title != "all":
            groups.append((title, [left.pop(name) for name in names if name in left]))
    return [(title, found) for title, found in [*groups, ("other", list(left.values()))] if found]


def _row(result: Result, metrics: Sequence[Metric]) -> Row:
    kind = "ranked" if result.ranked else "unranked" if failed_parity(result) else "absent"
    values = [Value(metric.text(result), _key(metric.value(result))) for metric in metrics]
    return Row(result.cell, kind, values, outcome(result) if kind == "absent" else "")


def _key(value: float | str | None) -> str:
    return "" if value is None else str(value)
