"""What is needed to go on with a study: kept beside the saved studies until it has come to its end.

A document has medians and means; this has everything that was measured, as the study itself had it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from polybench.core.document.circumstances import RoundNoise, Settings
from polybench.measuring.kept import Kept
from polybench.planning.pace import PaceState
from polybench.report.cell_record import CellRecord
from polybench.report.document import Context


class Group(msgspec.Struct):
    """Cells whose workers live at the same time, by name, and the pace that was chosen for them."""

    cells: list[str]
    pace: PaceState


class Done(msgspec.Struct):
    """Which parts of a study are finished; trainings are in the records."""

    verified: bool = False
    replicates: int = 0
    native: bool = False
    groups: list[Group] = []
    """Of the replicates; they stay as they were, whatever memory there is now."""


class Checkpoint(msgspec.Struct, kw_only=True):
    """A study between two of its parts. `study` is TOML, as in the document."""

    context: Context
    study: str
    settings: Settings
    records: list[CellRecord]
    noise: list[RoundNoise]
    warnings: list[str]
    done: Done


class Unfinished(Kept[Checkpoint]):
    """Studies that are not finished.

    Args:
        results: the folder of saved studies.
    """

    def __init__(self, results: Path) -> None:
        super().__init__(results, "state", Checkpoint)
