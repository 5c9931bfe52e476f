"""What is needed to go on with a study on several machines: which study each of them began, and where."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from polybench.core.document.circumstances import NO_BACKGROUND, Background, Tool
from polybench.core.machines import MachineGroup
from polybench.core.spec import Study
from polybench.measuring.kept import Kept
from polybench.report.experience import Check


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """A study and on which machines it is measured; `on` is how they are reached,
    and `ship` whether they are sent this polybench."""

    study: Study
    groups: Sequence[MachineGroup]
    on: str
    ship: bool = False
    argv: Sequence[str] = ()
    background: Background = NO_BACKGROUND
    strict: bool = False
    check: Check = "new"
    anonymous: bool = False


class Member(msgspec.Struct, kw_only=True):
    """One group's study. What it needs to go on is kept by `checkpoint.Unfinished`."""

    label: str
    study_id: str
    hostname: str | None = None
    """Of the machine that began it last."""
    versions: dict[str, str | None] = {}
    """Of the packages that the engines need, there."""
    notes: list[str] = []
    """What its document says of lost machines."""
    ended: bool = False


class FleetCheckpoint(msgspec.Struct, kw_only=True):
    """A fleet between two parts of any of its studies."""

    id: str
    created: str
    tool: Tool
    fleet: Fleet
    members: list[Member]


class UnfinishedFleets(Kept[FleetCheckpoint]):
    """Fleets that are not finished.

    Args:
        results: the folder of saved studies.
    """

    def __init__(self, results: Path) -> None:
        super().__init__(results, "fleet", FleetCheckpoint)
