"""Results table of a page: all columns with values, of which the important ones are visible at first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polybench.render.footnotes import failed_parity
from polybench.render.study import status_text
from polybench.schema import units
from polybench.schema.metrics import DEFAULT_COLUMNS, GROUPS, METRICS, Metric
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

_MAX_VISIBLE = 7
"""Initially visible columns, as many as fit a wide screen."""


class Column(NamedTuple):
    """Column of a metric.

    Attributes:
        description: unit of the sort keys, and an explanation of the title.
        better: "lower" or "higher", or "".
        shown: True if the column is visible at first.
    """

    name: str
    title: str
    description: str
    better: str
    numeric: bool
    shown: bool


class Value(NamedTuple):
    """Text of a table cell with its sort key: a number, a word, or "" without a value."""

    text: str
    sort_key: str


class Row(NamedTuple):
    """Row of a configuration.

    Attributes:
        kind: `ranked`, `unranked` or `not-measured`; sorting keeps this order of kinds.
        status_text: reason for missing times, or "".
    """

    configuration: str
    kind: str
    values: list[Value]
    status_text: str


class ResultsTable(NamedTuple):
    """Columns, also by group, and rows."""

    groups: list[tuple[str, list[Column]]]
    columns: list[Column]
    rows: list[Row]


def build_results_table(study: StudyDocument) -> ResultsTable:
    """Build the table, with rows in the order of measurement."""
    measured = [result for result in study.results if result.is_measured]
    metrics = [metric for metric in METRICS.values() if any(metric.value(one) is not None for one in measured)]
    names = {metric.name for metric in metrics}
    shown = [name for name in DEFAULT_COLUMNS if name in names][:_MAX_VISIBLE]
    columns = [_column(metric, metric.name in shown, study.settings.input_kind) for metric in metrics]
    return ResultsTable(
        groups=list(_group(columns)),
        columns=columns,
        rows=sorted((_row(result, metrics) for result in study.results), key=lambda row: _ORDER[row.kind]),
    )


_ORDER = {"ranked": 0, "unranked": 1, "not-measured": 2}


def _column(metric: Metric, shown: bool, input_kind: str) -> Column:
    title = units.with_input_kind(metric.title, input_kind)
    description = ", ".join(filter(None, (metric.unit, metric.description)))
    description = units.with_input_kind(description, input_kind)
    return Column(metric.name, title, description, metric.better or "", metric.unit is not None, shown)


def _group(columns: Sequence[Column]) -> list[tuple[str, list[Column]]]:
    remaining = {column.name: column for column in columns}
    groups = []
    for group, names in GROUPS.items():
        if group != "all":
            members = [remaining.pop(name) for name in names if name in remaining]
            groups.append((group.replace("_", " "), members))
    return [(title, members) for title, members in [*groups, ("other", list(remaining.values()))] if members]


def _row(result: Result, metrics: Sequence[Metric]) -> Row:
    kind = "ranked" if result.is_ranked else "unranked" if failed_parity(result) else "not-measured"
    values = [Value(metric.text(result), _sort_key(metric.value(result))) for metric in metrics]
    return Row(result.configuration, kind, values, status_text(result) if kind == "not-measured" else "")


def _sort_key(value: float | str | None) -> str:
    return "" if value is None else str(value)
