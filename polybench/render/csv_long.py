"""CSV in long format, for data frames and R: one line per status, metric and step time."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from polybench.render.csv import format_boolean
from polybench.render.study_table import Column
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument

HEADER = (
    "study", "configuration", "engine", "variant", "environment", "device", "precision",
    "quantity", "unit", "process", "round", "index", "value", "low", "high",
)  # fmt: skip
STEP_TIMES = "step_times"
"""Quantity of a single step time in seconds; process, round and index start at 0."""

Record = tuple[object, ...]


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """Render CSV with one header line; `low` and `high` are the interval of a metric.

    Metrics without a value have no line.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for result in study.results:
        labels = (
            study.id, result.configuration, result.engine, result.variant, result.environment, result.device,
            result.workload.precision,
        )  # fmt: skip
        records = (*_summary(result, columns), *_step_times(result))
        writer.writerows((*labels, *record) for record in records)
    return text.getvalue()


def _summary(result: Result, columns: Sequence[Column]) -> Iterator[Record]:
    yield "status", None, None, None, None, result.status, None, None
    yield "ranked", None, None, None, None, format_boolean(result.is_ranked), None, None
    for column in columns:
        value = column.value(result)
        if value is not None:
            low, high = column.interval(result) or (None, None)
            yield column.name, column.unit, None, None, None, value, low, high


def _step_times(result: Result) -> Iterator[Record]:
    for process, rounds in enumerate(result.nested_step_times):
        for number, values in enumerate(rounds):
            for index, seconds in enumerate(values):
                yield STEP_TIMES, "s", process, number, index, seconds, None, None
