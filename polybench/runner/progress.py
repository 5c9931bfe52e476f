"""Progress reports of a running study, and its remaining time; the runner itself prints nothing."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from polybench.planning.estimate import ZERO_ESTIMATE, Estimate
from polybench.schema.metadata import PhaseSeconds
from polybench.schema.result import Status


class ConfigurationProgress(NamedTuple):
    """Progress of a configuration: measured rounds in all process runs, and their median step time if any."""

    name: str
    parity: str
    status: Status
    rounds: int
    median_step_seconds: float | None


class PhaseProgress(NamedTuple):
    """A phase that begins, or a part of one.

    Attributes:
        name: what happens in it, such as "parity check".
        seconds: expected duration, learned from earlier studies; 0 if it is unknown.
        seconds_left: maximum expected seconds until the study ends, with this phase; None if that has not changed.
        is_timed: True if steps are timed in it: nothing may use the CPU then.
    """

    name: str
    seconds: float
    seconds_left: float | None = None
    is_timed: bool = False


class Progress(Protocol):
    """Receives progress reports, only between measurements."""

    def on_stage(self, text: str) -> None:
        """Report what runs now."""
        ...

    def on_time_left(self, seconds: float) -> None:
        """Report the maximum expected remaining time of the study."""
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


Phase = Literal["data", "parity", "process_starts", "rounds", "allocation_count", "native_trace", "trainings"]
"""Fields of `Estimate` and `PhaseSeconds`."""
_IN_EACH_PROCESS_RUN = ("process_starts", "rounds")
_NAMES: Mapping[Phase, str] = {
    "data": "preparing data",
    "parity": "parity check",
    "process_starts": "starting and warming up",
    "rounds": "measuring",
    "allocation_count": "counting allocations",
    "native_trace": "counting native allocations",
    "trainings": "training whole epochs",
}


class PhaseTimer:
    """Timer of one study. A phase may occur several times, as rounds do in each process run.

    Reports the remaining time at the beginning of each long phase. `estimate` has the expected total seconds of
    each phase, `start_seconds` those of each configuration's cold start.
    """

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.estimate = ZERO_ESTIMATE
        self.start_seconds: Mapping[str, float] = {}
        self._seconds: dict[str, dict[int, float]] = {phase: {} for phase in Estimate._fields}
        """By phase and number of the process run, which is 0 until the first one starts."""
        self._process_run = 0
        self._process_runs_left = 1

    def start_process_run(self, left: int) -> None:
        """Start a process run; `left` is the number of process runs to come, including this one."""
        self._process_run += 1
        self._process_runs_left = left

    @contextlib.contextmanager
    def phase(self, phase: Phase, earlier_seconds: float = 0.0) -> Iterator[None]:
        """Time a phase, in addition to an earlier part of it; a phase that raises an exception does not count."""
        left = self.remaining_seconds(phase)
        if phase not in ("rounds", "allocation_count"):  # they directly follow the process starts
            self.progress.on_time_left(left)
        seconds = self._remaining_in_phase(phase)
        if phase in _IN_EACH_PROCESS_RUN:
            seconds /= self._process_runs_left
        self.progress.on_phase(PhaseProgress(_NAMES[phase], seconds, left, phase in ("rounds", "trainings")))
        start = time.monotonic() - earlier_seconds
        yield
        runs = self._seconds[phase]
        runs[self._process_run] = runs.get(self._process_run, 0.0) + time.monotonic() - start

    def start_of(self, configuration: str) -> None:
        """Report that a configuration starts alone, as a part of the process starts."""
        self.progress.on_phase(PhaseProgress(f"starting {configuration}", self.start_seconds.get(configuration, 0.0)))

    def block_of(self, configuration: str, what: str) -> None:
        """Report a timing block that begins, as a part of the rounds; `what` is "measuring" or "warming up"."""
        self.progress.on_phase(PhaseProgress(f"{what}: {configuration}", 0.0, is_timed=True))

    def remaining_seconds(self, now: Phase) -> float:
        """Estimate the seconds from the beginning of phase `now` to the end of the study."""
        phases = list(Estimate._fields)
        return sum(self._remaining_in_phase(phase) for phase in phases[phases.index(now) :])

    def subtract_completed(self, completed_fractions: Mapping[Phase, float]) -> None:
        """Reduce the estimate by the fraction of each phase that a resumed study has already completed."""
        remaining = {
            phase: (1 - fraction) * getattr(self.estimate, phase) for phase, fraction in completed_fractions.items()
        }
        self.estimate = self.estimate._replace(**remaining)

    def _remaining_in_phase(self, phase: str) -> float:
        estimate, seconds = float(getattr(self.estimate, phase)), self._seconds[phase]
        if phase == "allocation_count" and self._process_run > 1:
            return 0.0  # only the first process run counts allocations
        if phase not in _IN_EACH_PROCESS_RUN:
            return max(0.0, estimate - sum(seconds.values()))
        # The first start does not predict the next one, because it uses no cached compiled code.
        if self._process_run > (2 if phase == "process_starts" else 1):
            expected = seconds[self._process_run - 1]
        else:
            expected = estimate / max(1, self._process_run + self._process_runs_left - 1)
        return max(0.0, expected - seconds.get(self._process_run, 0.0)) + expected * (self._process_runs_left - 1)

    def durations(self) -> PhaseSeconds:
        """Return the total seconds of each phase so far; those of starts and rounds by process run."""
        seconds: dict[str, Any] = {phase: sum(times.values(), 0.0) for phase, times in self._seconds.items()}
        seconds |= {phase: list(self._seconds[phase].values()) for phase in _IN_EACH_PROCESS_RUN}
        return PhaseSeconds(**seconds)
