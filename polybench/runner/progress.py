"""Progress reports of a running study; the runner itself prints nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from polybench.log import PhaseEnded
from polybench.schema.result import Status


class ConfigurationProgress(NamedTuple):
    """Progress of a configuration: measured rounds in all process runs, and their mean step if any."""

    name: str
    parity: str
    status: Status
    rounds: int
    step_seconds: float | None


class PhaseProgress(NamedTuple):
    """A phase that begins, or a part of one.

    Attributes:
        name: what happens in it, such as "parity check".
        is_timed: True if steps are timed in it: nothing may use the CPU then.
        done: fraction of the study's process runs and rounds that is measured, from 0 to 1; None if unknown.
    """

    name: str
    is_timed: bool = False
    done: float | None = None


class Progress(Protocol):
    """Receives progress reports, only between measurements."""

    def on_stage(self, text: str) -> None:
        """Report what runs now."""
        ...

    def on_time_left(self, seconds: float) -> None:
        """Report the remaining time of the process runs by the pace of those before."""
        ...

    def on_phase(self, phase: PhaseProgress) -> None:
        """Report a phase that begins, for a progress bar."""
        ...

    def on_configurations(self, configurations: Sequence[ConfigurationProgress]) -> None:
        """Report the progress of each configuration after every change."""
        ...

    def on_warning(self, text: str) -> None:
        """Report a warning, which is also in the result."""
        ...


class NullProgress:
    """Ignores all reports."""

    def on_stage(self, text: str) -> None:
        """Ignore the report."""

    def on_time_left(self, seconds: float) -> None:
        """Ignore the report."""

    def on_phase(self, phase: PhaseProgress) -> None:
        """Ignore the report."""

    def on_configurations(self, configurations: Sequence[ConfigurationProgress]) -> None:
        """Ignore the report."""

    def on_warning(self, text: str) -> None:
        """Ignore the warning; it is also in the result."""


class CallbackProgress(NullProgress):
    """Passes each report as a line of text to a function, such as `print`."""

    def __init__(self, callback: Callable[[str], object]) -> None:
        self._callback = callback

    def on_stage(self, text: str) -> None:
        """Pass the text."""
        self._callback(text)

    def on_time_left(self, seconds: float) -> None:
        """Pass the remaining time if it is at least one second."""
        if seconds >= 1:
            self._callback(f"about {seconds:.0f} s left")

    def on_warning(self, text: str) -> None:
        """Pass the text as a warning."""
        self._callback(f"warning: {text}")


Phase = Literal[
    "data", "parity", "process_starts", "rounds", "allocation_count", "cold_starts", "native_trace", "trainings"
]  # fmt: skip
"""Fields of `schema.metadata.PhaseSeconds`."""
_NAMES: Mapping[Phase, str] = {
    "data": "preparing data",
    "parity": "parity check",
    "process_starts": "starting and warming up",
    "rounds": "measuring",
    "allocation_count": "counting allocations",
    "native_trace": "counting native allocations",
    "cold_starts": "starting programs alone",
    "trainings": "training whole epochs",
}


class PhaseTimer:
    """Timer of one study. A phase may occur several times, as rounds do in each process run.

    From the second process run on, it reports the remaining time by the pace of the last one.
    """

    def __init__(self, progress: Progress, process_runs: int, record: Callable[[PhaseEnded], object]) -> None:
        self.progress, self._record = progress, record
        self._process_runs = process_runs
        self._process_run, self._started_at = -1, 0.0
        self._done = 0.0

    def start_process_run(self, number: int) -> None:
        """Start process run `number`, from 0."""
        now = time.monotonic()
        self._done = number / self._process_runs
        if self._process_run >= 0:
            self.progress.on_time_left((now - self._started_at) * (self._process_runs - number))
        self._process_run, self._started_at = number, now

    def start_round(self, done: int, rounds: int) -> None:
        """Start a round of this process run, after `done` of `rounds`."""
        self._done = (self._process_run + done / rounds) / self._process_runs

    @contextlib.contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Time a phase, or a part of it; a phase that raises an exception does not count."""
        self._report(_NAMES[phase], is_timed=phase in ("rounds", "trainings"))
        start = time.monotonic()
        yield
        process = self._process_run if self._process_run >= 0 else None
        self._record(PhaseEnded(phase=phase, process=process, seconds=time.monotonic() - start))

    def start_of(self, configuration: str) -> None:
        """Report that a configuration starts alone, as a part of the process starts."""
        self._report(f"starting {configuration}")

    def block_of(self, configuration: str, what: str) -> None:
        """Report a timing block that begins, as a part of the rounds; `what` is "measuring" or "warming up"."""
        self._report(f"{what}: {configuration}", is_timed=True)

    def _report(self, name: str, *, is_timed: bool = False) -> None:
        self.progress.on_phase(PhaseProgress(name, is_timed, self._done if self._process_run >= 0 else None))
