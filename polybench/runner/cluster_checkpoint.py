"""Checkpoints of unfinished studies on several machines: the study of each machine group."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from polybench.runner.checkpoint_store import CheckpointStore
from polybench.schema.metadata import NO_METADATA, StudyFileMetadata, ToolVersion
from polybench.schema.options import MachineGroup, Study
from polybench.storage.past_durations import CheckScope


class ClusterRun(msgspec.Struct, frozen=True, kw_only=True):
    """A study and its machines: `on` is their address, `upload` means that they get this polybench's code."""

    study: Study
    groups: Sequence[MachineGroup]
    on: str
    upload: bool = False
    argv: Sequence[str] = ()
    study_file: StudyFileMetadata = NO_METADATA
    strict: bool = False
    parity_check: CheckScope = "new"
    anonymous: bool = False


class MachineStudy(msgspec.Struct, kw_only=True):
    """The study of one machine group. `study_checkpoint` holds its own checkpoint."""

    label: str
    study_id: str
    hostname: str | None = None
    """Host name of the machine that last started it."""
    versions: dict[str, str | None] = {}
    """Versions of the engines' packages on that machine."""
    notes: list[str] = []
    """Notes on lost machines, for its document."""
    finished: bool = False


class ClusterCheckpoint(msgspec.Struct, kw_only=True):
    """State of a study on several machines, between two phases of any of its machine studies."""

    id: str
    created: str
    tool_version: ToolVersion
    run: ClusterRun
    machine_studies: list[MachineStudy]


class ClusterCheckpointStore(CheckpointStore[ClusterCheckpoint]):
    """Checkpoints of unfinished studies on several machines.

    Args:
        results: the folder of saved studies.
    """

    def __init__(self, results: Path) -> None:
        super().__init__(results, "cluster", ClusterCheckpoint)
