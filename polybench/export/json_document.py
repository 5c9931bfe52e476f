"""The study as it is saved: all of it, whatever the columns."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.core.document.study import StudyDocument, to_json
from polybench.export.rows import Column


def render(study: StudyDocument, _: Sequence[Column]) -> str:
    """The document of schema `results.SCHEMA`; raises ValueError on a number that JSON does not have."""
    return to_json(study).decode()
