"""Study -> text: the columns somebody chose, or those that a format shows by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from polybench.core.document.study import StudyDocument
from polybench.export import FORMATS, FormatRow, render
from polybench.metrics import DEFAULT_COLUMNS, METRICS, in_order, metrics_of
from polybench.metrics.base import Metric


def rendered(
    study: StudyDocument,
    format: str,
    columns: Sequence[Metric] | None = None,
    formats: Mapping[str, FormatRow] = FORMATS,
    *,
    published: bool = False,
) -> str:
    """The study as text that ends with a newline.

    Args:
        study: the document.
        format: a key of `formats`.
        columns: in this order; None for what the format shows by itself.
        formats: the table of formats.
        published: whether people see the published numbers below the table.
    """
    for_people = formats[format].audience == "people"
    if for_people and not published:
        study = msgspec.structs.replace(study, published=[])
    if columns is None:
        columns = important_columns(study) if for_people else list(METRICS.values())
    return render(format, study, columns, formats)


def important_columns(study: StudyDocument) -> list[Metric]:
    """What a table shows by itself: the important metrics that have a value and fit."""
    from polybench.export.fitting import fitting  # brings tabulate, which help pages need not wait for

    return in_order(fitting(study, metrics_of(DEFAULT_COLUMNS)))
