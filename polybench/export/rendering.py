"""Study -> text: the columns somebody chose, or those that a format shows by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from polybench.core.document.study import StudyDocument
from polybench.export import FORMATS, WIDTH, FormatRow, render
from polybench.metrics import DEFAULT_COLUMNS, METRICS, in_order, metrics_of
from polybench.metrics.base import Metric


def rendered(
    study: StudyDocument,
    format: str,
    columns: Sequence[Metric] | None = None,
    formats: Mapping[str, FormatRow] = FORMATS,
    *,
    published: bool = False,
    width: int = WIDTH,
) -> str:
    """The study as text that ends with a newline.

    Args:
        study: the document.
        format: a key of `formats`.
        columns: in this order; None for what the format shows by itself.
        formats: the table of formats.
        published: whether people see the published numbers below the table.
        width: characters of a line, where the format has any.
    """
    for_people = formats[format].audience == "people"
    if for_people and not published:
        study = msgspec.structs.replace(study, published=[])
    if columns is None:
        columns = list(METRICS.values())
        if for_people:
            columns = important_columns(study, width if formats[format].has_width else None)
    return render(format, study, columns, formats, width)


def important_columns(study: StudyDocument, width: int | None) -> list[Metric]:
    """What a table shows by itself: the important metrics that have a value and fit.

    `width` is that of a line in characters, None where there is no limit.
    """
    from polybench.export.fitting import fitting  # brings tabulate, which help pages need not wait for

    # What authors printed stands beside our own, which the table should have, too.
    theirs = [number.metric for number in study.published if number.cell]
    first = ("step_time", *theirs) if theirs else ()
    return in_order(fitting(study, metrics_of((*first, *DEFAULT_COLUMNS)), width))
