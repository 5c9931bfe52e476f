"""Checkpoints of unfinished studies, in a folder beside the saved studies.

A document contains medians and means; a checkpoint contains all measurements.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from polybench.planning.schedule import RoundBudgetState
from polybench.results.document import DocumentHeader
from polybench.results.run_state import ConfigurationRun
from polybench.runner.checkpoint_store import CheckpointStore
from polybench.schema.metadata import RoundInterference, Settings


class ConfigurationGroup(msgspec.Struct):
    """Configurations, by name, whose workers run at the same time, and their round budget."""

    configurations: list[str]
    round_budget: RoundBudgetState


class CompletedPhases(msgspec.Struct):
    """Finished phases of a study. Trainings are in the configuration runs."""

    parity_check: bool = False
    process_runs: int = 0
    native_allocations: bool = False
    groups: list[ConfigurationGroup] = []
    """Groups of the process runs. A resumed study keeps them, whatever memory is free then."""


class StudyCheckpoint(msgspec.Struct, kw_only=True):
    """State of a study between two phases. `study` is TOML, as in the document."""

    header: DocumentHeader
    study: str
    settings: Settings
    runs: list[ConfigurationRun]
    interference: list[RoundInterference]
    warnings: list[str]
    completed: CompletedPhases


class StudyCheckpointStore(CheckpointStore[StudyCheckpoint]):
    """Checkpoints of unfinished studies.

    Args:
        results: the folder of saved studies.
    """

    def __init__(self, results: Path) -> None:
        super().__init__(results, "study", StudyCheckpoint)
