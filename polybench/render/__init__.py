"""Output formats of studies. ADD A FORMAT: a file with `render(study, columns) -> str`, and its row here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    from polybench.render.study_table import Column
    from polybench.schema.metrics import Metric
    from polybench.schema.study import StudyDocument


INTERVALS = "intervals: 95% confidence, across process runs"
"""Note below tables with intervals."""

WIDTH = 100
"""Default characters per line. Columns that a user chose may make a table wider."""


class FormatSpec(NamedTuple):
    """Location and audience of a format.

    Attributes:
        module: contains `render`; imported on first use.
        audience: "human" formats show the important columns that fit, and published results only with
            `--published`; "machine" formats contain every column and the whole document.
        has_width: True for terminal formats, whose `render` accepts the width of the terminal.
    """

    module: str
    audience: Literal["human", "machine"]
    has_width: bool = False


FORMATS: dict[str, FormatSpec] = {
    "table": FormatSpec("polybench.render.terminal", "human", has_width=True),
    "bars": FormatSpec("polybench.render.bar_chart", "human", has_width=True),
    "markdown": FormatSpec("polybench.render.markdown", "human"),
    "github": FormatSpec("polybench.render.github", "human"),
    "html": FormatSpec("polybench.render.html_table", "human"),
    "csv": FormatSpec("polybench.render.csv", "machine"),
    "csv-long": FormatSpec("polybench.render.csv_long", "machine"),
    "json": FormatSpec("polybench.render.json_document", "machine"),
    "latex": FormatSpec("polybench.render.latex", "human"),
}
"""Formats of a study, by their name for --format."""


PARITY_FORMATS: dict[str, FormatSpec] = {
    "table": FormatSpec("polybench.render.parity_table", "human"),
    "json": FORMATS["json"],
}
"""Formats of `polybench parity`."""


RECORD_FORMATS = ("table", "markdown", "csv", "json")
"""Formats of the other documents: sweeps, overheads, layers, peaks, differences."""


def one_line(text: str) -> str:
    """Replace line breaks and runs of spaces in `text` by single spaces."""
    return " ".join(text.split())


def render_study(
    study: StudyDocument,
    format: str,
    columns: Sequence[Metric] | None = None,
    formats: Mapping[str, FormatSpec] = FORMATS,
    *,
    published: bool = False,
    width: int = WIDTH,
) -> str:
    """Render a study with the chosen columns, or with the default columns of the format.

    Args:
        study: the document.
        format: a key of `formats`.
        columns: in this order; None for the defaults of the format.
        formats: the available formats.
        published: add the published results to formats with a human audience.
        width: characters per line, for formats with a width.

    Returns:
        Text that ends with a newline.
    """
    from polybench.render.auto_columns import important_columns
    from polybench.schema.metrics import METRICS

    for_humans = formats[format].audience == "human"
    if for_humans and not published:
        study = msgspec.structs.replace(study, published=[])
    if columns is None:
        columns = list(METRICS.values())
        if for_humans:
            columns = important_columns(study, width if formats[format].has_width else None)
    return render(format, study, columns, formats, width)


def render(
    name: str,
    study: StudyDocument,
    columns: Sequence[Column],
    formats: Mapping[str, FormatSpec] = FORMATS,
    width: int = WIDTH,
) -> str:
    """Render a study with exactly these columns, as text that ends with a newline.

    Raises:
        KeyError: `formats` does not contain `name`.
    """
    spec = formats[name]
    text: str = import_module(spec.module).render(study, columns, *([width] if spec.has_width else []))
    return text
