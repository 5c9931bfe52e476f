"""Small cluster runs for tests: a hundred images, the engine `fake`, two process runs of a few milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from _faults import write_images

from polybench.log import (
    AnyEvent,
    BlockTimed,
    Failed,
    Header,
    Log,
    PlannedConfiguration,
    ProcessEnded,
    ProcessStarted,
    RoundMeasured,
    SettingsChosen,
    StudyEnded,
)
from polybench.results.document import study_toml
from polybench.runner.checkpoint import ClusterRun
from polybench.schema.metadata import RoundInterference
from polybench.schema.options import SINGLE_MACHINE, Configuration, MachineGroup, Study
from polybench.schema.resources import BlockCounters
from polybench.storage.anonymous_log import anonymous_event
from tests import factories
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


def study_log(
    header: Header, study: Study, *more: AnyEvent, end: Literal["finished", "interrupted"] | None = None,
    configurations: Sequence[Configuration] = (Configuration("fake", (), "cpu"),), **settings: Any,
) -> Log:  # fmt: skip
    """Return an invented log with three process runs of each configuration, more events, and an end."""
    log = Log(edit=anonymous_event)
    log.add(msgspec.structs.replace(header, study=study_toml(study)))
    log.add(
        SettingsChosen(
            settings=msgspec.structs.replace(factories.study().settings, **settings),
            steps_in_epoch=390,
            configurations=[
                PlannedConfiguration(configuration=one, workload=factories.WORKLOAD) for one in configurations
            ],
        )
    )
    for process in range(3):
        log.add(ProcessStarted(process=process))
        log.add(RoundMeasured(load=RoundInterference(process, 0, 0.1, 1.0, 0.0, 0, False)))
        for one in configurations:
            log.add(
                BlockTimed(
                    configuration=one.name, process=process, round=0, step_seconds=[0.01] * 3, steps_per_value=1,
                    peak_rss_bytes=1 << 20, counters=BlockCounters(0.03, 0.03, 0.0, 0.0),
                )
            )  # fmt: skip
        log.add(ProcessEnded(process=process, budgets=[]))
    for event in more:
        log.add(event)
    if end is not None:
        log.add(StudyEnded(outcome=end, polybench=header.polybench))
    return log


def crash(configuration: str, log_path: str | None = None) -> Failed:
    return Failed(configuration=configuration, status="failed", reason="it crashed", log_path=log_path)


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
