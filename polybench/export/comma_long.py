"""CSV for programs, long: one line for each status, metric and sample, as data frames and R like it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.export.comma import boolean
from polybench.export.rows import Column

HEADER = (
    "study", "cell", "engine", "variant", "environment", "device", "precision",
    "quantity", "unit", "process", "round", "sample", "value", "low", "high",
)  # fmt: skip
SAMPLE = "sample"
"""The quantity of a sample: seconds of a training step; process, round and sample count from 0."""

Line = tuple[object, ...]


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """CSV with one header line; `low` and `high` are a metric's interval, what has no value has no line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    for result in study.results:
        cell = (
            study.id, result.cell, result.engine, result.variant, result.environment, result.device,
            result.workload.precision,
        )  # fmt: skip
        writer.writerows((*cell, *line) for line in (*_summary(result, columns), *_samples(result)))
    return text.getvalue()


def _summary(result: Result, columns: Sequence[Column]) -> Iterator[Line]:
    yield "status", None, None, None, None, result.status, None, None
    yield "ranked", None, None, None, None, boolean(result.ranked), None, None
    for column in columns:
        value = column.value(result)
        if value is not None:
            low, high = column.interval(result) or (None, None)
            yield column.name, column.unit, None, None, None, value, low, high


def _samples(result: Result) -> Iterator[Line]:
    for process, rounds in enumerate(result.steps):
        for number, one_round in enumerate(rounds):
            for index, seconds in enumerate(one_round):
                yield SAMPLE, "s", process, number, index, seconds, None, None
