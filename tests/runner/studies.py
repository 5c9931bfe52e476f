"""Short studies of the fake engine in real processes, and what happens to them."""

from __future__ import annotations

import os
import pickle
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from polybench.log import read_log
from polybench.results.document import derive
from polybench.run import run_study
from polybench.runner.progress import NullProgress, PhaseProgress
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store

FAST: dict[str, Any] = {
    "data": "synthetic", "processes": 2, "rounds_per_process": 3, "steps_per_round": 5, "budget": 99.0, "timeout": 60.0,
    "wait_idle": 0.0,
}  # fmt: skip


class RecordingProgress(NullProgress):
    """Records stages, warnings and the remaining time."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.warnings: list[str] = []
        self.seconds_left: list[float] = []
        self.phases: list[PhaseProgress] = []

    def on_stage(self, text: str) -> None:
        self.stages.append(text)

    def on_time_left(self, seconds: float) -> None:
        self.seconds_left.append(seconds)

    def on_phase(self, phase: PhaseProgress) -> None:
        self.phases.append(phase)

    def on_warning(self, text: str) -> None:
        self.warnings.append(text)


class CallbackOnStage(RecordingProgress):
    """Calls `act` at the first stage whose name contains the pattern."""

    def __init__(self, pattern: str, act: Callable[[], object]) -> None:
        super().__init__()
        self._pattern, self._act, self._done = pattern, act, False

    def on_stage(self, text: str) -> None:
        super().on_stage(text)
        if not self._done and re.search(self._pattern, text):
            self._done = True
            self._act()


def interrupt_at(stage: str) -> CallbackOnStage:
    """Return a progress that interrupts the study at this stage, like Ctrl-C."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    return CallbackOnStage(stage, interrupt)


def kill_at(stage: str, measure: Callable[..., object], *arguments: object, **options: object) -> None:
    """Call `measure` with these arguments and a progress in another process, which is killed at this stage."""
    call = pickle.dumps((stage, measure, arguments, options)).hex()
    done = subprocess.run([sys.executable, "-m", __name__, call], check=False)
    assert done.returncode == -signal.SIGKILL


def _run_until_killed(
    stage: str, measure: Callable[..., object], arguments: tuple[object, ...], options: dict[str, object]
) -> None:
    measure(*arguments, CallbackOnStage(stage, lambda: os.kill(os.getpid(), signal.SIGKILL)), **options)


def run(
    *engines: str, store: Store | None = None, listener: RecordingProgress | None = None, **fields: Any
) -> StudyDocument:
    """Measure a short study with these engines."""
    return run_study(Study(engines=engines, **(FAST | fields)), listener or RecordingProgress(), store=store)


def saved(results: Path) -> StudyDocument:
    """Return the report of the only saved study."""
    (path,) = results.glob("*.jsonl")
    return derive(read_log(path))


if __name__ == "__main__":
    _run_until_killed(*pickle.loads(bytes.fromhex(sys.argv[1])))
