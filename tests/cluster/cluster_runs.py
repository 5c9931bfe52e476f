"""Small cluster runs for tests: a hundred images, the engine `fake`, two process runs of a few milliseconds."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from _faults import write_images

from polybench.runner.checkpoint import ClusterRun
from polybench.schema.options import SINGLE_MACHINE, MachineGroup, Study
from tests.runner.studies import RecordingProgress

FIELDS: dict[str, Any] = {
    "engines": ("fake",),
    "devices": ("cpu",),
    "batch_size": 16,
    "processes": 2,
    "rounds_per_process": 1,
    "steps_per_round": 2,
    "margin": 0.9,
    "budget": 20.0,
    "wait_idle": 0.0,
    "timeout": 60.0,
    "parity": False,
    "metrics": False,
}


def study(folder: Path, **fields: Any) -> Study:
    images = folder / "images"
    if not images.exists():
        write_images(images)
    return Study(**(FIELDS | {"data": str(images)} | fields))


def cluster_run(folder: Path, *labels: str, on: str = "local", **fields: Any) -> ClusterRun:
    groups = tuple(MachineGroup(label=label) for label in labels) or SINGLE_MACHINE
    return ClusterRun(study=study(folder, **fields), groups=groups, on=on)


class ActAtStage(RecordingProgress):
    """Calls a function once, at the start of a stage."""

    def __init__(self, stage: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._stage, self._act = stage, act

    def on_stage(self, text: str) -> None:
        super().on_stage(text)
        if self._stage in text:
            self._stage = "\0"
            self._act()
