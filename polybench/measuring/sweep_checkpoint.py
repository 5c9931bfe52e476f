"""What is needed to go on with a sweep: which of its points are begun; each is a study by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from polybench.core.document.circumstances import NO_BACKGROUND, Background, Host, Tool
from polybench.core.spec import Study
from polybench.measuring.kept import Kept
from polybench.planning.study_file import parse
from polybench.report.document import study_toml

Kind = Literal["sweep", "overhead"]
"""Which command shows it."""


class Series(NamedTuple):
    """What a sweep is about: a study again and again.

    Attributes:
        study: what all points share.
        axes: what is varied, with its values; of planning.grid.
        kind: what is made of it.
        background: what the study file says beside the study.
    """

    study: Study
    axes: Mapping[str, Sequence[int]]
    kind: Kind = "sweep"
    background: Background = NO_BACKGROUND


class SweepCheckpoint(msgspec.Struct, kw_only=True):
    """A sweep between two of its points. `study` is TOML, as in documents."""

    id: str
    created: str
    argv: list[str]
    study: str
    axes: dict[str, list[int]]
    kind: Kind
    background: Background
    tool: Tool
    host: Host
    anonymous: bool = False
    begun: dict[int, str] = {}
    """Number of a point -> ID of its study."""

    @property
    def series(self) -> Series:
        """What it is about."""
        study = parse(self.study, f"the study of {self.id}")
        return Series(study, self.axes, self.kind, self.background)

    def asks_for(self, series: Series) -> bool:
        """Whether it is about exactly this."""
        axes = {axis: list(values) for axis, values in series.axes.items()}
        # Their order is the points' order.
        same = list(self.axes.items()) == list(axes.items())
        return same and (self.study, self.kind) == (study_toml(series.study), series.kind)


class UnfinishedSweeps(Kept[SweepCheckpoint]):
    """Sweeps that are not finished.

    Args:
        results: the folder of saved studies.
    """

    def __init__(self, results: Path) -> None:
        super().__init__(results, "sweep", SweepCheckpoint)
