"""The formats. ADD A FORMAT: one file with `render(study, columns) -> str`, and its row here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polybench.core.document.study import StudyDocument
    from polybench.export.rows import Column

FORMATS: dict[str, str] = {
    "table": "polybench.export.terminal",
    "markdown": "polybench.export.markdown",
    "csv": "polybench.export.comma",
    "json": "polybench.export.json_document",
    "latex": "polybench.export.latex",
}
"""Name for --format -> module, loaded only when asked for."""


PARITY_FORMATS: dict[str, str] = {
    "table": "polybench.export.parity_table",
    "json": "polybench.export.json_document",
}
"""The same for `polybench parity`."""


def render(
    name: str, study: StudyDocument, columns: Sequence[Column], formats: Mapping[str, str] = FORMATS
) -> str:
    """The study as text that ends with a newline; raises KeyError for a name that `formats` does not have."""
    text: str = import_module(formats[name]).render(study, columns)
    return text
