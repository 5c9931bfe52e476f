"""The formats. ADD A FORMAT: one file with `render(study, columns) -> str`, and its row here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from polybench.core.document.study import StudyDocument
    from polybench.export.rows import Column


WIDTH = 100
"""Characters of a line where nobody says how wide the terminal is. Columns that somebody asked for may make
a table wider."""


class FormatRow(NamedTuple):
    """Where a format is, and who reads it.

    Attributes:
        module: has `render`, and is loaded only when asked for.
        audience: people get the important columns, as many as fit, and published numbers only with
            `--published`; programs get every column, and the whole document.
        has_width: it is read on a terminal, whose width `render` takes; a document has none.
    """

    module: str
    audience: Literal["people", "programs"]
    has_width: bool = False


FORMATS: dict[str, FormatRow] = {
    "table": FormatRow("polybench.export.terminal", "people", has_width=True),
    "bars": FormatRow("polybench.export.bars", "people", has_width=True),
    "markdown": FormatRow("polybench.export.markdown", "people"),
    "github": FormatRow("polybench.export.github", "people"),
    "html": FormatRow("polybench.export.html_table", "people"),
    "csv": FormatRow("polybench.export.comma", "programs"),
    "csv-long": FormatRow("polybench.export.comma_long", "programs"),
    "json": FormatRow("polybench.export.json_document", "programs"),
    "latex": FormatRow("polybench.export.latex", "people"),
}
"""By the name for --format."""


PARITY_FORMATS: dict[str, FormatRow] = {
    "table": FormatRow("polybench.export.parity_table", "people"),
    "json": FORMATS["json"],
}
"""The same for `polybench parity`."""


RECORD_FORMATS = ("table", "markdown", "csv", "json")
"""The same for what is no study's table: a sweep, the fixed costs of steps."""


def render(
    name: str,
    study: StudyDocument,
    columns: Sequence[Column],
    formats: Mapping[str, FormatRow] = FORMATS,
    width: int = WIDTH,
) -> str:
    """The study as text that ends with a newline; raises KeyError for a name that `formats` does not have."""
    row = formats[name]
    text: str = import_module(row.module).render(study, columns, *([width] if row.has_width else []))
    return text
