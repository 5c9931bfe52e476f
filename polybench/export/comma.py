"""CSV for programs: plain numbers in SI units, one row for every cell, also for those without times."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.export.one_line import one_line
from polybench.export.rows import Column


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """CSV with one header line; units stand in brackets in it, empty is "not measured"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_header(study, columns))
    writer.writerows(_row(study, result, columns) for result in study.results)
    return text.getvalue()


def _header(study: StudyDocument, columns: Sequence[Column]) -> list[str]:
    header = ["cell", "engine", "variant", "device", "status", "ranked"]
    for column in columns:
        unit = f" [{column.unit}]" if column.unit else ""
        header.append(f"{column.name}{unit}")
        if _has_interval(study, column):
            header += [f"{column.name}_low{unit}", f"{column.name}_high{unit}"]
    return [*header, "reason", "remedy"]


def _row(study: StudyDocument, result: Result, columns: Sequence[Column]) -> list[object]:
    row: list[object] = [
        result.cell,
        result.engine,
        result.variant,
        result.device,
        result.status,
        "yes" if result.ranked else "no",
    ]
    for column in columns:
        row.append(column.value(result))
        if _has_interval(study, column):
            row += column.interval(result) or (None, None)
    return [*row, one_line(result.reason or ""), one_line(result.remedy or "")]


def _has_interval(study: StudyDocument, column: Column) -> bool:
    return any(column.interval(result) for result in study.results)
