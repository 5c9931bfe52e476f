"""Which columns a table shows when nobody chose: the most important ones that say something and fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from polybench.core.document.study import StudyDocument
from polybench.export.rows import Column
from polybench.export.terminal import table_width

C = TypeVar("C", bound=Column)


def fitting(study: StudyDocument, candidates: Sequence[C], width: int | None) -> list[C]:
    """Those candidates that have a value in some row, as many as a line holds.

    Args:
        study: whose table it is; how wide a column is depends on its values.
        candidates: by importance; one that does not fit is left out, a narrower one after it may still fit.
        width: characters of a line; None where there is no limit.
    """
    shown: list[C] = []
    for column in candidates:
        has_values = any(column.value(result) is not None for result in study.results if result.measured)
        if has_values and (width is None or table_width(study, [*shown, column]) <= width):
            shown.append(column)
    return shown
