"""Several studies side by side: step times of the cells that they share; a verdict is what diff is for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polybench.core.document.study import StudyDocument
from polybench.metrics.step_time import STEP_TIME


class Overview(NamedTuple):
    """A row for each cell, a column for each study.

    Attributes:
        studies: the place in the page, title, machine and date of each.
        rows: a cell, and its step time in each study; "" where that has none.
    """

    studies: list[tuple[str, str, str, str]]
    rows: list[tuple[str, list[str]]]


def overview(studies: Sequence[tuple[str, str, StudyDocument]]) -> Overview:
    """Of studies with their places and titles, in this order; cells as the first has them that has them."""
    found = [
        {result.cell: STEP_TIME.text(result) for result in study.results if result.ranked}
        for _, _, study in studies
    ]
    cells = dict.fromkeys(cell for texts in found for cell in texts)
    return Overview(
        studies=[
            (place, title, study.host.hostname, study.created.partition("T")[0])
            for place, title, study in studies
        ],
        rows=[(cell, [texts.get(cell, "") for texts in found]) for cell in cells],
    )


def name_of(study: StudyDocument) -> str:
    """Its title, or else its workload."""
    settings = study.settings
    return study.title or f"{settings.model} on {settings.dataset}, batch {settings.batch_size}"
