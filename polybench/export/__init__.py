"""The formats. ADD A FORMAT: one file with `render(study, columns) -> str`, and its row here."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polybench.core.results import StudyDocument
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


def render(module: str, study: StudyDocument, columns: Sequence[Column]) -> str:
    """The study as text that ends with a newline; `module` is a value of one of the tables above."""
    text: str = import_module(module).render(study, columns)
    return text
