"""Study -> text: the columns somebody chose, or those that a format shows by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from polybench.core.document.study import StudyDocument
from polybench.export import FORMATS, render
from polybench.metrics import DEFAULT_COLUMNS, METRICS, in_order, metrics_of
from polybench.metrics.base import Metric

_FOR_PROGRAMS = ("csv",)
"""Formats with every metric: nobody has to fit them into a terminal."""


def rendered(
    study: StudyDocument,
    format: str,
    columns: Sequence[Metric] | None = None,
    formats: Mapping[str, str] = FORMATS,
    *,
    published: bool = False,
) -> str:
    """The study as text that ends with a newline.

    Args:
        study: the document.
        format: a key of `formats`.
        columns: in this order; None for what the format shows by itself.
        formats: the table of formats.
        published: whether tables have the published numbers below them; JSON is the whole document anyway.
    """
    if not published and format != "json":
        study = msgspec.structs.replace(study, published=[])
    return render(format, study, default_columns(study, format) if columns is None else columns, formats)


def default_columns(study: StudyDocument, format: str) -> list[Metric]:
    """Every metric for a program; for people the important ones that have a value and fit."""
    if format in _FOR_PROGRAMS:
        return list(METRICS.values())
    from polybench.export.fitting import fitting  # brings tabulate, which help pages need not wait for

    return in_order(fitting(study, metrics_of(DEFAULT_COLUMNS)))
