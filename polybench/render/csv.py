"""CSV with one row per configuration: plain numbers in SI units."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence

from polybench.render import one_line
from polybench.render.study_table import Column
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument


def render(study: StudyDocument, columns: Sequence[Column]) -> str:
    """Render CSV with one header line, which contains units in brackets; an empty field means "not measured".

    The header depends only on the columns, and every row contains the workload and the host. Files of
    several studies can therefore be concatenated.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*_STUDY, *_CONFIGURATION, *_metric_titles(columns), *_STATUS])
    writer.writerows(_row(study, result, columns) for result in study.results)
    return text.getvalue()


def format_boolean(value: bool) -> str:
    """Format a boolean for CSV: "true" or "false"."""
    return "true" if value else "false"


_STUDY = ("study", "created", "model", "data", "batch_size", "threads", "host")
_CONFIGURATION = (
    "configuration",
    "engine",
    "variant",
    "environment",
    "device",
    "precision",
    "status",
    "ranked",
)
_STATUS = ("reason", "hint")


def _metric_titles(columns: Sequence[Column]) -> Iterator[str]:
    for column in columns:
        unit = f" [{column.unit}]" if column.unit else ""
        yield f"{column.name}{unit}"
        if column.has_interval:
            yield f"{column.name}_low{unit}"
            yield f"{column.name}_high{unit}"


def _row(study: StudyDocument, result: Result, columns: Sequence[Column]) -> list[object]:
    work = result.workload
    row: list[object] = [study.id, study.created, work.model, work.dataset, work.batch_size, work.threads]
    row += [study.host.hostname, result.configuration, result.engine, result.variant, result.environment]
    row += [result.device, work.precision, result.status, format_boolean(result.is_ranked)]
    for column in columns:
        row.append(column.value(result))
        if column.has_interval:
            row += column.interval(result) or (None, None)
    texts = (one_line(text) if isinstance(text, str) else text for text in row)
    return [*texts, one_line(result.reason or ""), one_line(result.hint or "")]
