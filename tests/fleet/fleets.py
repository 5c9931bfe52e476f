"""Small fleets for tests: a hundred images, the engine `fake`, two replicates of a few milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from killed import write_images

from polybench.core.machines import ONE_MACHINE, MachineGroup
from polybench.core.spec import Study
from polybench.measuring.fleet_checkpoint import Fleet
from tests.measuring.test_study import Listener

FIELDS: dict[str, Any] = {
    "engines": ("fake",),
    "devices": ("cpu",),
    "batch_size": 16,
    "processes": 2,
    "rounds": 1,
    "steps": 2,
    "target": 0.9,
    "budget": 20.0,
    "timeout": 60.0,
    "parity": False,
    "metrics": False,
}


def study(folder: Path, **fields: Any) -> Study:
    images = folder / "images"
    if not images.exists():
        write_images(images)
    return Study(**(FIELDS | {"data": str(images)} | fields))


def fleet(folder: Path, *labels: str, on: str = "local", **fields: Any) -> Fleet:
    groups = tuple(MachineGroup(label=label) for label in labels) or ONE_MACHINE
    return Fleet(study=study(folder, **fields), groups=groups, on=on)


class At(Listener):
    """Does something once, when a stage begins."""

    def __init__(self, stage: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._stage, self._act = stage, act

    def stage(self, text: str) -> None:
        super().stage(text)
        if self._stage in text:
            self._stage = "\0"
            self._act()
