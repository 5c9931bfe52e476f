"""Progress reports of a running study, and its remaining time; the runner itself prints nothing."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import Literal, NamedTuple, Protocol

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


class Progress(Protocol):
    """Receives progress reports, only between measurements."""

    def on_stage(self, text: str) -> None:
        """Report what runs now."""
        ...

    def on_time_left(self, seconds: float) -> None:
        """Report the maximum expected remaining time of the study."""
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
_PER_PROCESS_RUN: tuple[Phase, ...] = ("process_starts", "rounds", "allocation_count")
"""Phases of each group in each process run; only the first process run counts allocations."""


class _Duration(NamedTuple):
    group: int
    seconds: float


class PhaseTimer:
    """Timer of one study. A phase may occur several times, as rounds do in each process run.

    Reports the remaining time at the beginning of each long phase. `estimate` has the expected total seconds of
    each phase, and `group` is the number of the configuration group that is measured now.
    """

    def __init__(self, progress: Progress) -> None:
        self.group = 0
        self.progress = progress
        self.estimate = ZERO_ESTIMATE
        self._durations: dict[str, list[_Duration]] = {phase: [] for phase in Estimate._fields}
        self.plan_process_runs(1, 1)

    def plan_process_runs(self, process_runs: int, groups: int) -> None:
        """Set the number of process runs to come, and of groups that alternate in each."""
        self._process_runs, self._group_count = process_runs, groups
        self._active_groups = set(range(groups))

    def drop_group(self, group: int) -> None:
        """Exclude a group from the remaining time, since all of its configurations have failed."""
        self._active_groups.discard(group)

    @contextlib.contextmanager
    def phase(self, phase: Phase, earlier_seconds: float = 0.0) -> Iterator[None]:
        """Time a phase, in addition to an earlier part of it; a phase that raises an exception does not count."""
        if phase not in ("rounds", "allocation_count"):  # they directly follow the process starts
            self.progress.on_time_left(self.remaining_seconds(phase))
        start = time.monotonic() - earlier_seconds
        yield
        self._durations[phase].append(_Duration(self.group, time.monotonic() - start))

    def remaining_seconds(self, now: Phase) -> float:
        """Estimate the seconds from the beginning of phase `now` to the end of the study.

        A phase is expected to take as long as its last occurrence in the same group. The first start is an
        exception, because it does not use cached compiled code.
        """
        phases = list(Estimate._fields)
        first = phases.index("process_starts" if now in (*_PER_PROCESS_RUN, "native_trace") else now)
        return sum(self._remaining_in_phase(phase) for phase in phases[first:])

    def subtract_completed(self, completed_fractions: Mapping[Phase, float]) -> None:
        """Reduce the estimate by the fraction of each phase that a resumed study has already completed."""
        remaining = {
            phase: (1 - fraction) * getattr(self.estimate, phase) for phase, fraction in completed_fractions.items()
        }
        self.estimate = self.estimate._replace(**remaining)

    def _remaining_in_phase(self, phase: str) -> float:
        if phase in _PER_PROCESS_RUN:
            return sum(self._remaining_in_group(group, phase) for group in self._active_groups)
        return max(0.0, float(getattr(self.estimate, phase)) - sum(self._durations_of(phase)))

    def _remaining_in_group(self, group: int, phase: str) -> float:
        """Estimate the seconds of a group in a phase of each process run."""
        occurrences = 1 if phase == "allocation_count" else self._process_runs
        to_come = occurrences - len(self._durations_of("process_starts", group))
        if to_come <= 0:
            return 0.0
        first = int(phase == "process_starts")
        if durations := self._durations_of(phase, group)[first:]:
            return to_come * durations[-1]
        others = [seconds for other in self._active_groups for seconds in self._durations_of(phase, other)[first:][-1:]]
        expected = float(getattr(self.estimate, phase)) / (occurrences * self._group_count)
        return to_come * (fmean(others) if others else expected)

    def _durations_of(self, phase: str, group: int | None = None) -> list[float]:
        """Return the duration of each occurrence, of all groups or of one."""
        return [one.seconds for one in self._durations[phase] if group in (None, one.group)]

    def durations(self) -> PhaseSeconds:
        """Return the total seconds of each phase so far."""
        total = {phase: sum(self._durations_of(phase), 0.0) for phase in self._durations}
        return PhaseSeconds(
            data=total["data"],
            parity=total["parity"],
            process_starts=self._seconds_per_process_run("process_starts"),
            rounds=self._seconds_per_process_run("rounds"),
            allocation_count=total["allocation_count"],
            native_trace=total["native_trace"],
            trainings=total["trainings"],
        )

    def _seconds_per_process_run(self, phase: Phase) -> list[float]:
        """Return the seconds of each process run, summed over groups."""
        groups = [self._durations_of(phase, group) for group in {one.group: None for one in self._durations[phase]}]
        return [sum(times, 0.0) for times in itertools.zip_longest(*groups, fillvalue=0.0)]
