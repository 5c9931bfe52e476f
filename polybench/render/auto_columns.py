"""Automatic choice of a table's columns: the most important ones that have values and fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from polybench.render.study_table import Column
from polybench.render.terminal import table_width
from polybench.schema.metrics import DEFAULT_COLUMNS, Metric, in_table_order, select_metrics
from polybench.schema.study import StudyDocument

C = TypeVar("C", bound=Column)


def fit_columns(study: StudyDocument, candidates: Sequence[C], width: int | None) -> list[C]:
    """Select the candidates that have a value in some row, as many as fit into a line.

    Args:
        study: the study that the table shows; its values determine how wide the columns are.
        candidates: most important first. A narrower column may still fit after one that does not.
        width: characters per line; None for no limit.
    """
    selected: list[C] = []
    for column in candidates:
        has_values = any(column.value(result) is not None for result in study.results if result.is_measured)
        if has_values and (width is None or table_width(study, [*selected, column]) <= width):
            selected.append(column)
    return selected


def important_columns(study: StudyDocument, width: int | None) -> list[Metric]:
    """Choose the default columns: the important metrics that have a value and fit.

    Metrics of the study's published results come right after the step time.

    Args:
        study: the study that the table shows.
        width: characters per line; None for no limit.
    """
    published = [number.metric for number in study.published if number.configuration]
    first = ("step_time", *published) if published else ()
    return in_table_order(fit_columns(study, select_metrics((*first, *DEFAULT_COLUMNS)), width))
