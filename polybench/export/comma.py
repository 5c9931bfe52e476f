"""CSV for programs: plain numbers in SI units, one row for every cell, also for those without times."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.export.one_line import one_line
from polybench.export.rows import Column


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """CSV with one header line; units stand in brackets in it, empty is "not measured".

    The header depends on the columns only, so files of several studies can be put together. What was
    measured, and where, is in every row.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_STUDY, *_CELL, *_header(columns), *_ABSENT])
    writer.writerows(_row(study, result, columns) for result in study.results)
    return text.getvalue()


def boolean(value: bool) -> str:
    """As both kinds of CSV have it."""
    return "true" if value else "false"


_STUDY = ("study", "created", "model", "data", "batch_size", "threads", "host")
_CELL = ("cell", "engine", "variant", "environment", "device", "precision", "status", "ranked")
_ABSENT = ("reason", "remedy")


def _header(columns: Sequence[Column]) -> Iterator[str]:
    for column in columns:
        unit = f" [{column.unit}]" if column.unit else ""
        yield f"{column.name}{unit}"
        if column.has_interval:
            yield f"{column.name}_low{unit}"
            yield f"{column.name}_high{unit}"


def _row(study: StudyDocument, result: Result, columns: Sequence[Column]) -> list[object]:
    work = result.workload
    row: list[object] = [study.id, study.created, work.model, work.dataset, work.batch_size, work.threads]
    row += [study.host.hostname, result.cell, result.engine, result.variant, result.environment]
    row += [result.device, work.precision, result.status, boolean(result.ranked)]
    for column in columns:
        row.append(column.value(result))
        if column.has_interval:
            row += column.interval(result) or (None, None)
    texts = (one_line(text) if isinstance(text, str) else text for text in row)
    return [*texts, one_line(result.reason or ""), one_line(result.remedy or "")]
