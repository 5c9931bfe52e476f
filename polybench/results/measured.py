"""Applies the events of a log one after the other, to the state of a study and of its configurations.

The running program and `results.document.derive` apply the same events, so a report has what the log has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import singledispatchmethod
from pathlib import Path
from typing import Generic, Literal, Self, TypeVar

import msgspec

from polybench.engines.job import EngineInfo
from polybench.log import (
    AllocationsCounted,
    AllreduceTimed,
    AnyEvent,
    BlockTimed,
    EngineLoaded,
    EpochTrained,
    Failed,
    GroupsChosen,
    Header,
    KernelsChosen,
    MemoryMeasured,
    NumpyTimed,
    OfConfiguration,
    OperationsTimed,
    ParityChecked,
    PeaksUsed,
    PhaseEnded,
    PipelineTimed,
    PlannedConfiguration,
    PointStarted,
    ProcessEnded,
    ProcessStarted,
    ProgramStarted,
    RoundMeasured,
    SettingsChosen,
    StudyEnded,
    StudyResumed,
    Warned,
    WorkerStarted,
    damaged,
)
from polybench.machine.interference import severity
from polybench.machine.meters.observer import BlockUsage
from polybench.planning.schedule import RoundBudget
from polybench.protocol.calls import OperationTime
from polybench.schema.measurements import AllocationProfile, PeakMeasurement
from polybench.schema.metadata import PhaseSeconds, RoundInterference
from polybench.schema.options import Configuration
from polybench.schema.parity import UNCHECKED, ParityCheck
from polybench.schema.resources import Allocations, BlockCounters, GcStats, Memory, MemoryInUse
from polybench.schema.result import Program, Startup, Status, Training


@dataclass
class MeasuredConfiguration:
    """State of one configuration so far.

    Attributes:
        planned: the configuration, its workload and the environment of its workers.
        blocks: all attempts at timing blocks, as [process][round][attempt].
        best_blocks: the attempt with the least interference at each of them, as [process][round].
        operations: times of the operations of `layers` and `peak`, as [process][round][operation].
    """

    planned: PlannedConfiguration
    status: Status = "ok"
    reason: str | None = None
    hint: str | None = None
    log_path: Path | None = None
    engine_info: EngineInfo | None = None
    python: tuple[str, str] | None = None
    """Version and path of another environment's interpreter."""
    parity: ParityCheck = UNCHECKED
    program: Program | None = None
    code_sha256: str | None = None
    later_code_sha256: str | None = None
    resolution: Literal["step", "block"] = "step"
    program_starts: list[Startup] = field(default_factory=list)
    startups: list[Startup] = field(default_factory=list)
    started_alone: bool = True
    """True if the first worker started alone."""
    losses: list[float] = field(default_factory=list)
    blocks: list[list[list[BlockTimed]]] = field(default_factory=list)
    best_blocks: list[list[BlockTimed]] = field(default_factory=list)
    operations: list[list[list[OperationTime]]] = field(default_factory=list)
    gpu_bytes_freed: int | None = None
    memory_in_use: list[list[MemoryInUse]] = field(default_factory=list)
    """Readings of each process run."""
    memory: Memory = field(default_factory=Memory)
    allocations: Allocations = field(default_factory=Allocations)
    native_failure: str | None = None
    profile: AllocationProfile | None = None
    pipeline_and_training: PipelineTimed | None = None
    allreduce_times: tuple[float, float] | None = None
    """Seconds per step with and without the all-reduce of gradients."""
    peaks: list[PeakMeasurement] = field(default_factory=list)
    trainings: list[Training] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def configuration(self) -> Configuration:
        """The configuration."""
        return self.planned.configuration

    @property
    def env_vars(self) -> dict[str, str]:
        """Environment variables that polybench sets for the workers."""
        return self.planned.env_vars

    @property
    def is_active(self) -> bool:
        """True if another worker may be started for this configuration."""
        return self.status == "ok"

    @property
    def is_ranked(self) -> bool:
        """True if neither the run nor its parity check failed."""
        return self.status != "failed" and self.parity.status != "fail"

    @property
    def counted_blocks(self) -> list[list[BlockTimed]]:
        """The blocks that count, as [process][round]; trailing processes without a block are left out."""
        processes = max((number for number, rounds in enumerate(self.best_blocks, start=1) if rounds), default=0)
        return self.best_blocks[:processes]

    @property
    def step_times(self) -> list[list[list[float]]]:
        """Seconds per step, as [process][round][step]."""
        return [[block.step_seconds for block in process] for process in self.counted_blocks]

    @property
    def block_counters(self) -> list[list[BlockCounters]]:
        """Counters of the timing blocks, as [process][round]."""
        return [[block.counters for block in process] for process in self.counted_blocks]

    @property
    def steps_per_value(self) -> int:
        """Steps whose mean is one step time."""
        return next((block.steps_per_value for process in self.counted_blocks for block in process), 1)

    @property
    def usage(self) -> list[BlockUsage]:
        """Resource usage of the timing blocks."""
        return [block.usage for process in self.counted_blocks for block in process if block.usage is not None]

    @property
    def gc_stats(self) -> list[GcStats]:
        """Work of the garbage collector in the timing blocks."""
        return [block.gc for process in self.counted_blocks for block in process if block.gc is not None]

    @property
    def call_overheads(self) -> list[float]:
        """Extra seconds of a call from Python, by timing block."""
        blocks = [block.call_overhead_seconds for process in self.counted_blocks for block in process]
        return [seconds for seconds in blocks if seconds is not None]

    @property
    def peak_rss_bytes(self) -> int | None:
        """Peak resident memory over all processes."""
        return max((block.peak_rss_bytes for process in self.counted_blocks for block in process), default=None)

    def start_process_run(self) -> None:
        """Start a process run, in which nothing is measured yet."""
        for measured in (self.blocks, self.best_blocks, self.operations, self.memory_in_use):
            measured.append([])

    def drop_process_runs(self, first: int) -> None:
        """Leave out what this process run, and those after it, have measured."""
        for measured in (self.blocks, self.best_blocks, self.operations, self.memory_in_use, self.startups):
            del measured[first:]

    @singledispatchmethod
    def apply(self, event: OfConfiguration | Warned) -> None:
        """Apply an event."""
        raise TypeError(event)

    @apply.register
    def _(self, event: EngineLoaded) -> None:
        self.engine_info = EngineInfo(event.versions, event.build, tuple(event.devices))
        self.python, self.code_sha256 = event.python, event.code_sha256
        self.program = event.program or self.program

    @apply.register
    def _(self, event: ParityChecked) -> None:
        self.parity, self.later_code_sha256 = event.parity, event.later_code_sha256

    @apply.register
    def _(self, event: ProgramStarted) -> None:
        self.program_starts.append(event.startup)

    @apply.register
    def _(self, event: WorkerStarted) -> None:
        if event.startup is not None:
            if not self.startups:
                self.started_alone = event.alone
            self.startups.append(event.startup)
        self.resolution = event.resolution
        self.losses = [loss for loss in event.losses if loss is not None]

    @apply.register
    def _(self, event: BlockTimed) -> None:
        rounds = self.blocks[event.process]
        if event.round == len(rounds):
            rounds.append([])
        if (event.round, event.attempt) != (len(rounds) - 1, len(rounds[-1])):
            raise ValueError(f"attempt {event.attempt} of round {event.round} follows {len(rounds)} rounds")
        rounds[-1].append(event)
        self.best_blocks[event.process][event.round :] = [_least_affected(rounds[-1])]

    @apply.register
    def _(self, event: OperationsTimed) -> None:
        rounds = self.operations[event.process]
        first = next((one for process in self.operations for one in process), event.operations)
        if event.round != len(rounds):
            raise ValueError(f"operations of round {event.round} follow {len(rounds)} rounds")
        if [(one.layers, one.operation) for one in event.operations] != [(one.layers, one.operation) for one in first]:
            raise ValueError(f"round {event.round} has other operations than the first round")
        rounds.append(event.operations)

    @apply.register
    def _(self, event: MemoryMeasured) -> None:
        self.memory = event.memory or self.memory
        if event.in_use is not None:
            self.memory_in_use[-1].append(event.in_use)
        if event.gpu_bytes_freed is not None:
            self.gpu_bytes_freed = max(self.gpu_bytes_freed or 0, event.gpu_bytes_freed)

    @apply.register
    def _(self, event: AllocationsCounted) -> None:
        counted = {name: one for name in ("host", "device", "native") if (one := getattr(event, name)) is not None}
        self.allocations = msgspec.structs.replace(self.allocations, **counted)
        self.profile = event.profile or self.profile
        if event.native_failure is not None:
            self.native_failure = event.native_failure
            self.warnings.append(event.native_failure)

    @apply.register
    def _(self, event: PipelineTimed) -> None:
        self.pipeline_and_training = event

    @apply.register
    def _(self, event: AllreduceTimed) -> None:
        self.allreduce_times = event.with_seconds, event.without_seconds

    @apply.register
    def _(self, event: PeaksUsed) -> None:
        self.peaks = event.peaks

    @apply.register
    def _(self, event: EpochTrained) -> None:
        training = next((one for one in self.trainings if one.seed == event.seed), None)
        if training is None:
            self.trainings.append(training := Training(event.seed, []))
        if event.number > len(training.epochs):
            raise ValueError(f"epoch {event.number} of seed {event.seed} follows {len(training.epochs)} epochs")
        training.epochs[event.number :] = [event.epoch]

    @apply.register
    def _(self, event: Failed) -> None:
        self.status, self.reason, self.hint = event.status, event.reason, event.hint
        self.log_path = Path(event.log_path) if event.log_path else None

    @apply.register
    def _(self, event: Warned) -> None:
        if event.text not in self.warnings:  # a process run that was cut off may have warned of the same
            self.warnings.append(event.text)


def _least_affected(attempts: Sequence[BlockTimed]) -> BlockTimed:
    """Return the attempt that counts, the first of equal ones, with the number of further attempts, saved or not."""
    best = min(attempts, key=lambda block: severity(block.counters))
    counters = msgspec.structs.replace(best.counters, reruns=best.counters.reruns + len(attempts) - 1)
    return msgspec.structs.replace(best, counters=counters)


ConfigurationT = TypeVar("ConfigurationT", bound=MeasuredConfiguration)


@dataclass
class MeasuredStudy(Generic[ConfigurationT]):
    """State of a study so far.

    Attributes:
        configuration_type: type of its configurations, which a program that measures them extends.
        runs: one a configuration, in the study's order.
        groups: names of the configurations that are measured side by side.
        budgets: round budgets of the groups at the end of the last process run.
        interference: one entry a round.
        kernels: what a peak times.
        numpy: times of NumPy, one entry a round.
        process_runs: number of process runs that have ended.
        phase_seconds: by phase and number of the process run, -1 outside of process runs.
    """

    configuration_type: type[ConfigurationT]
    header: Header | None = None
    settings: SettingsChosen | None = None
    runs: list[ConfigurationT] = field(default_factory=list)
    _by_name: dict[str, ConfigurationT] = field(default_factory=dict)
    groups: list[list[str]] = field(default_factory=list)
    budgets: list[RoundBudget] = field(default_factory=list)
    interference: list[RoundInterference] = field(default_factory=list)
    kernels: KernelsChosen | None = None
    numpy: list[NumpyTimed] = field(default_factory=list)
    process_runs: int = 0
    warnings: list[Warned] = field(default_factory=list)
    phase_seconds: dict[str, dict[int, float]] = field(default_factory=dict)
    resumed: list[StudyResumed] = field(default_factory=list)
    end: StudyEnded | None = None
    idle_wait_seconds: float = 0.0
    busiest_programs: list[str] = field(default_factory=list)

    def apply_all(self, events: Iterable[AnyEvent], *, salvage: bool = False) -> Self:
        """Apply all events, and return the study.

        Blocks of a process run without its end do not count. Ctrl-C ends it early: what it has measured is reported
        until the study is resumed, which measures it again.

        Args:
            events: of a whole log.
            salvage: leave out all events from the first one on that contradicts those before it.

        Raises:
            DamagedLog: an event contradicts those before it; the message has its line.
        """
        for number, event in enumerate(events, start=1):
            try:
                self.apply(event)
            except (LookupError, ValueError) as error:
                if salvage:
                    break
                name = f"the log of {self.header.id}" if self.header else "the log"
                raise damaged(name, number, str(error)) from error
        if self.end is None:
            self.drop_unfinished()
        return self

    def run(self, configuration: str) -> ConfigurationT:
        """The run of a configuration; raises LookupError if the study has none of this name."""
        try:
            return self._by_name[configuration]
        except KeyError:
            raise LookupError(f"unknown configuration {configuration!r}") from None

    def phases(self) -> PhaseSeconds | None:
        """Seconds of all phases; None if the study was resumed, or none was timed."""
        if self.resumed or not self.phase_seconds:
            return None
        seconds = {
            phase: [*runs.values()] if phase in ("process_starts", "rounds") else sum(runs.values(), 0.0)
            for phase, runs in self.phase_seconds.items()
        }
        return msgspec.convert(seconds, PhaseSeconds)

    def drop_unfinished(self) -> None:
        """Leave out what the process run that did not end has measured."""
        ended = self.process_runs
        self.interference = [one for one in self.interference if one.process < ended]
        self.numpy = [one for one in self.numpy if one.process < ended]
        for run in self.runs:
            run.drop_process_runs(ended)

    def apply(self, event: AnyEvent) -> None:
        """Apply an event; raises LookupError or ValueError if it contradicts those before it."""
        if isinstance(event, BlockTimed | OperationsTimed | WorkerStarted) and event.process != self.process_runs:
            raise ValueError(
                f"{event.configuration} in process run {event.process} after {self.process_runs} have ended"
            )
        if isinstance(event, OfConfiguration) or (isinstance(event, Warned) and event.configuration is not None):
            assert event.configuration is not None
            self.run(event.configuration).apply(event)
        else:
            self._apply(event)

    @singledispatchmethod
    def _apply(self, event: AnyEvent) -> None:
        raise TypeError(event)

    @_apply.register
    def _(self, event: Header) -> None:
        self.header = event

    @_apply.register
    def _(self, event: PointStarted) -> None:
        raise ValueError(f"point {event.point} of a sweep in the log of a study")

    @_apply.register
    def _(self, event: SettingsChosen) -> None:
        if self.settings is not None:
            raise ValueError("second settings")
        self.settings = event
        self.runs = [self.configuration_type(planned) for planned in event.configurations]
        self._by_name = {run.configuration.name: run for run in self.runs}

    @_apply.register
    def _(self, event: GroupsChosen) -> None:
        self.groups, self.budgets = event.groups, []

    @_apply.register
    def _(self, event: ProcessStarted) -> None:
        if event.process != self.process_runs:
            raise ValueError(f"process run {event.process} starts after {self.process_runs} have ended")
        self.drop_unfinished()
        for run in self.runs:
            run.start_process_run()

    @_apply.register
    def _(self, event: ProcessEnded) -> None:
        if event.process != self.process_runs:
            raise ValueError(f"process run {event.process} ends after {self.process_runs} have ended")
        self.process_runs, self.budgets = event.process + 1, event.budgets

    @_apply.register
    def _(self, event: RoundMeasured) -> None:
        self.interference.append(event.load)
        self.idle_wait_seconds, self.busiest_programs = event.idle_wait_seconds, event.busiest_programs

    @_apply.register
    def _(self, event: KernelsChosen) -> None:
        if self.kernels is not None:
            raise ValueError("second kernels")
        self.kernels = event

    @_apply.register
    def _(self, event: NumpyTimed) -> None:
        if event.process != self.process_runs:
            raise ValueError(f"NumPy in process run {event.process} after {self.process_runs} have ended")
        self.numpy.append(event)

    @_apply.register
    def _(self, event: PhaseEnded) -> None:
        runs = self.phase_seconds.setdefault(event.phase, {})
        process = -1 if event.process is None else event.process
        runs[process] = runs.get(process, 0.0) + event.seconds

    @_apply.register
    def _(self, event: Warned) -> None:
        if event.text not in [one.text for one in self.warnings]:
            self.warnings.append(event)

    @_apply.register
    def _(self, event: StudyResumed) -> None:
        self.resumed.append(event)
        self.end = None
        self.drop_unfinished()

    @_apply.register
    def _(self, event: StudyEnded) -> None:
        if event.outcome == "discarded":  # nothing else has happened
            return
        self.end = event
        self.idle_wait_seconds, self.busiest_programs = event.idle_wait_seconds, event.busiest_programs


def measured_study(events: Iterable[AnyEvent], *, salvage: bool = False) -> MeasuredStudy[MeasuredConfiguration]:
    """Return what the events of a log say; see `MeasuredStudy.apply_all`."""
    return MeasuredStudy(MeasuredConfiguration).apply_all(events, salvage=salvage)
