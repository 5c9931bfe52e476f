"""The whole study as JSON, as polybench saves it; the columns have no effect."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.render.study_table import Column
from polybench.schema.study import StudyDocument, to_json


def render(study: StudyDocument, _: Sequence[Column]) -> str:
    """Render the JSON document; raises ValueError for numbers that JSON cannot represent."""
    return to_json(study).decode()
