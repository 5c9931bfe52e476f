"""Checkpoints of unfinished sweeps: the points that have started, each with a study of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from polybench.planning.study_file import parse
from polybench.results.document import study_toml
from polybench.runner.checkpoint_store import CheckpointStore
from polybench.schema.metadata import NO_METADATA, Host, StudyFileMetadata, ToolVersion
from polybench.schema.options import Study

SweepCommand = Literal["sweep", "overhead"]
"""The command that renders the sweep."""


class SweepSpec(NamedTuple):
    """A study and the values to sweep.

    Attributes:
        study: settings that all points share.
        axes: swept values by the axes of `planning.grid`.
        command: that renders the sweep.
        study_file: metadata of the study file.
    """

    study: Study
    axes: Mapping[str, Sequence[int]]
    command: SweepCommand = "sweep"
    study_file: StudyFileMetadata = NO_METADATA


class SweepCheckpoint(msgspec.Struct, kw_only=True):
    """State of a sweep between two points. `study` is TOML, as in documents."""

    id: str
    created: str
    argv: list[str]
    study: str
    axes: dict[str, list[int]]
    command: SweepCommand
    study_file: StudyFileMetadata
    tool_version: ToolVersion
    host: Host
    anonymous: bool = False
    started: dict[int, str] = {}
    """Point number -> ID of its study."""

    @property
    def spec(self) -> SweepSpec:
        """The sweep's study and swept values."""
        study = parse(self.study, f"the study of {self.id}")
        return SweepSpec(study, self.axes, self.command, self.study_file)

    def matches(self, spec: SweepSpec) -> bool:
        """Return whether the sweep has exactly this study and these swept values."""
        axes = {axis: list(values) for axis, values in spec.axes.items()}
        # The order of the axes determines that of the points.
        same_axes = list(self.axes.items()) == list(axes.items())
        return same_axes and (self.study, self.command) == (study_toml(spec.study), spec.command)


class SweepCheckpointStore(CheckpointStore[SweepCheckpoint]):
    """Checkpoints of unfinished sweeps.

    Args:
        results: the folder of saved studies.
    """

    def __init__(self, results: Path) -> None:
        super().__init__(results, "sweep", SweepCheckpoint)
