"""Measures configurations in process runs: fresh processes, a warm-up, then timing blocks in rounds.

Whole steps, layers and peaks are measured by the same loop,
with another list of operations.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from polybench.log import (
    BlockTimed,
    GroupsChosen,
    MemoryMeasured,
    OperationsTimed,
    ProcessEnded,
    ProcessStarted,
    RoundMeasured,
    WorkerStarted,
)
from polybench.machine.interference import BlockMeter, severity
from polybench.machine.load import RoundMeter
from polybench.machine.meters.observer import BlockUsage
from polybench.planning import schedule
from polybench.planning.schedule import CALIBRATION_STEPS, RoundBudget, TimingBlocks
from polybench.protocol import calls
from polybench.protocol.calls import Prepared
from polybench.protocol.process import WorkerProcess
from polybench.runner.allocations import count_after_timing, count_native_allocations
from polybench.runner.cold_start import starts_alone
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.parity import check_other_code
from polybench.runner.session import Session
from polybench.runner.workers import Workers, load_request, record_failure, request_all, start_worker
from polybench.schema.resources import BlockCounters
from polybench.stats.statistics import margin_of_error, ratio

_MAX_RERUNS = 3
"""Per block. More frequent interference is likely to continue."""


class Operation:
    """Something that is measured in every worker once per round; every method does nothing by default.

    Attributes:
        relative_cost: its duration per timed step of the block, relative to a whole step.
        reports_startup: the first processes start cold, like a user's own, because their startup is reported.
    """

    relative_cost = 1.0
    reports_startup = False

    def start(self, session: Session) -> None:
        """Prepare what all workers share, before the first of them starts."""

    def build(self, run: ConfigurationRun, worker: WorkerProcess) -> None:
        """Prepare a new worker after its warm-up."""

    def measure(self, run: ConfigurationRun, worker: WorkerProcess, budget: RoundBudget, steps: int) -> None:
        """Measure the operation in a worker; raises ConfigurationFailed if the worker fails."""

    def end_round(self) -> None:
        """Measure what is measured once per round, outside of the workers."""


class WholeSteps(Operation):
    """Timing blocks of training steps. Blocks are observed from outside; those with interference are re-measured."""

    reports_startup = True

    def start(self, session: Session) -> None:
        """Start without knowing any worker."""
        self._session = session
        self._gpu_workers: dict[str, int] = {}

    def build(self, run: ConfigurationRun, worker: WorkerProcess) -> None:
        """Remember which processes use a GPU."""
        if run.configuration.device != "cpu":
            self._gpu_workers[run.configuration.name] = worker.pid

    def measure(self, run: ConfigurationRun, worker: WorkerProcess, budget: RoundBudget, steps: int) -> None:
        """Measure a block, and re-measure it while there is interference and time left.

        The kernel's counters, not the measured times, decide whether to re-measure and which measurement
        counts: the one with the least interference.
        """
        study, idle_wait = self._session.plan.study, self._session.idle_wait
        request = calls.measure_block(steps, study.injected_delays.get(run.configuration.name, 0.0))
        process, number = len(run.blocks) - 1, len(run.blocks[-1])
        attempts: list[BlockCounters] = []
        while len(attempts) <= _MAX_RERUNS:
            with self._watch(run, worker) as usage:
                meter = BlockMeter(worker.pid)
                measured = worker.request(request, study.timeout)
                attempts.append(meter.stop())
            run.record(
                BlockTimed(
                    configuration=run.configuration.name,
                    process=process,
                    round=number,
                    attempt=len(attempts) - 1,
                    counters=attempts[-1],
                    usage=usage,
                    **msgspec.structs.asdict(measured),
                )
            )
            if len(attempts) > 1:
                budget.spare_seconds -= attempts[-1].wall_seconds
            best = min(attempts, key=severity)
            if not best.affected:
                return
            idle_wait.after_interference()
            if best.wall_seconds > budget.spare_seconds:
                return

    def _watch(
        self, run: ConfigurationRun, worker: WorkerProcess
    ) -> contextlib.AbstractContextManager[BlockUsage | None]:
        """Observe a worker from outside during an attempt at a block, unless only times are measured."""
        observer = self._session.observer
        if observer is None:
            return contextlib.nullcontext()
        return observer.watch_block(worker.pid, run.configuration.device, self._gpu_workers.values())


class _Group(NamedTuple):
    """Names of configurations whose workers run at the same time, and their round budget."""

    configurations: Sequence[str]
    round_budget: RoundBudget


class ProcessRuns:
    """The process runs of a study, which measure the operations in every active configuration.

    If memory cannot hold all workers at once, configurations form groups, which stay the same in all process
    runs. Each group has its own part of the budget and its own round budget, because step times may differ by
    a factor of a hundred.
    """

    def __init__(self, session: Session, operations: Sequence[Operation] = ()) -> None:
        """Prepare what all process runs share; `operations` are by default whole steps."""
        self._session, self._operations = session, operations or [WholeSteps()]
        self._study = session.plan.study
        self._groups = self._make_groups()  # before workers use memory
        self._have_programs = {
            run.configuration.name: self._study.cold_starts > 0 and starts_alone(session.plan, run.configuration)
            for run in session.runs
        }
        for operation in self._operations:
            operation.start(session)
        if len(self._groups) > 1:
            session.warn(
                f"memory cannot hold all workers at once: measuring {len(self._groups)} groups, one after the other"
            )

    def measure(self, number: int) -> None:
        """Measure process run `number`: in each group fresh workers, a warm-up, rounds, and what follows all timing.

        A configuration that fails records the reason. No worker is running before or after it.
        """
        session = self._session
        session.phase_timer.start_process_run(number)
        session.record(ProcessStarted(process=number))
        for group in self._groups:
            with self._workers(group, number) as workers:
                with session.phase_timer.phase("rounds"):
                    for done in self._rounds(workers, group, number):
                        self._measure_round(workers, group.round_budget, number, done)
                if number == 0 and (block := group.round_budget.block) is not None:
                    with session.phase_timer.phase("allocation_count"):
                        count_after_timing(session, workers.values(), block.steps)
                if group is self._groups[-1]:  # a study that is killed now has all times of this process run
                    self._end_process_run(number)
                if number + 1 == self._study.processes:
                    count_native_allocations(session, workers.values())
        session.check_log()

    def _make_groups(self) -> list[_Group]:
        """Group the configurations; after its first process run, a study keeps its groups and their budgets."""
        session, measured = self._session, self._session.measured
        if measured.process_runs:
            budgets = [msgspec.structs.replace(budget) for budget in measured.budgets]
            return [*map(_Group, measured.groups, budgets)]
        active = session.active_runs
        groups = [[run.configuration.name for run in group] for group in session.group_by_memory(active)]
        if groups != measured.groups:
            session.record(GroupsChosen(groups=groups))
        return [_Group(group, RoundBudget.of(self._study, len(group) / len(active))) for group in groups]

    def _end_process_run(self, number: int) -> None:
        budgets = [msgspec.structs.replace(group.round_budget) for group in self._groups]
        self._session.record(ProcessEnded(process=number, budgets=budgets))

    @contextlib.contextmanager
    def _workers(self, group: _Group, number: int) -> Iterator[Workers]:
        """Start and warm up a worker for each active configuration of a group, and wait for an idle machine.

        Configurations that fail are left out.
        """
        session = self._session
        runs = self._active_runs(group)
        if not runs:
            yield {}
            return
        with contextlib.ExitStack() as stack:
            with session.phase_timer.phase("process_starts"):
                workers = self._load(stack, runs, number)
            self._check_other_code(workers)
            with session.phase_timer.phase("process_starts"):
                self._warm_up(workers, number)
            group.round_budget.start_process_run()
            session.idle_wait.wait_until_idle()
            yield workers

    def _active_runs(self, group: _Group) -> list[ConfigurationRun]:
        return [run for run in self._session.active_runs if run.configuration.name in group.configurations]

    def _load(self, stack: contextlib.ExitStack, group: Sequence[ConfigurationRun], number: int) -> Workers:
        """Start the workers and load their engines; a cached check of other code then does not count."""
        names = ", ".join(run.configuration.name for run in group)
        self._session.progress.on_stage(f"process {number + 1} of {self._study.processes}: starting {names}")

        workers: Workers = {}
        for part in self._starts(group, number):
            if len(part) == 1:
                self._session.phase_timer.start_of(part[0].configuration.name)
            started = {run.configuration.name: (run, stack.enter_context(self._start(run, number))) for run in part}
            request_all(started, load_request, ConfigurationRun.record_loaded, self._study.timeout)
            workers |= started
        return workers

    def _check_other_code(self, workers: Workers) -> None:
        """Check configurations now whose cached check was made with other code, beside the workers that wait."""
        check_other_code(self._session, [run for run, _ in workers.values()])
        for name, (run, worker) in list(workers.items()):
            if not run.is_active:
                worker.kill()
                del workers[name]

    def _is_cold(self, run: ConfigurationRun, number: int) -> bool:
        """Return True if the start of this worker is the configuration's cold start: it has no program to start."""
        reports = any(operation.reports_startup for operation in self._operations)
        return number == 0 and reports and not self._have_programs[run.configuration.name]

    def _starts(self, runs: Sequence[ConfigurationRun], number: int) -> Sequence[Sequence[ConfigurationRun]]:
        """Group the runs that start at the same time: each alone whose cold start is that of its worker."""
        alone = [[run] for run in runs if self._is_cold(run, number)]
        together = [run for run in runs if not self._is_cold(run, number)]
        return [*alone, *([together] if together else [])]

    @contextlib.contextmanager
    def _start(self, run: ConfigurationRun, number: int) -> Iterator[WorkerProcess]:
        """Start a worker, and record how much GPU memory its end frees, whatever other processes use."""
        with start_worker(run, self._session.logs, str(number), cold=self._is_cold(run, number)) as worker:
            yield worker
            before = self._gpu_bytes(run)
        after = self._gpu_bytes(run)
        if before is not None and after is not None and before > after:
            run.record(MemoryMeasured(configuration=run.configuration.name, gpu_bytes_freed=before - after))

    def _gpu_bytes(self, run: ConfigurationRun) -> int | None:
        observer = self._session.observer
        return observer.used_gpu_bytes(run.configuration.device) if observer else None

    def _warm_up(self, workers: Workers, number: int) -> None:
        for part in self._starts([run for run, _ in workers.values()], number):
            preparing = {run.configuration.name: workers[run.configuration.name] for run in part}
            request_all(preparing, self._session.prepare_request, self._record_startup(number), self._study.timeout)
            for failed in {run.configuration.name for run in part} - preparing.keys():
                del workers[failed]
        for name, (run, worker) in list(workers.items()):
            with record_failure(workers, name):
                for operation in self._operations:
                    operation.build(run, worker)

    def _record_startup(self, number: int) -> Callable[[ConfigurationRun, Prepared], None]:
        """Return what records the answer of a worker that has started."""

        def record(run: ConfigurationRun, prepared: Prepared) -> None:
            run.record_program(prepared.program)
            run.record(
                WorkerStarted(
                    configuration=run.configuration.name,
                    process=number,
                    startup=prepared.startup,
                    alone=self._is_cold(run, number),
                    resolution=prepared.timing_resolution,
                    losses=[*prepared.losses],
                )
            )

        return record

    def _rounds(self, workers: Workers, group: _Group, number: int) -> Iterator[int]:
        """Yield the number of each round of a process run, from 0, as long as the budget has another one."""
        session, budget = self._session, group.round_budget
        block, done = self._calibrate(workers, budget), 0
        while block is not None and workers and budget.has_another_round(done):
            session.progress.on_stage(
                f"process {number + 1} of {self._study.processes}: round {done + 1} of {block.rounds}"
            )
            session.phase_timer.start_round(done, block.rounds)
            yield done
            session.report_progress()
            done += 1
            if number == 0 and budget.is_adaptive and self._has_enough_rounds(group, done):
                budget.stop_after(done)

    def _calibrate(self, workers: Workers, budget: RoundBudget) -> TimingBlocks | None:
        """Run one block per configuration, to warm it up and to choose the blocks; None if all have failed."""
        steps_in_epoch, seconds = self._session.files.steps_in_epoch, []
        request = calls.calibrate(min(CALIBRATION_STEPS, steps_in_epoch))
        cost = sum(operation.relative_cost for operation in self._operations)
        for name, (run, worker) in list(workers.items()):
            self._session.phase_timer.block_of(name, "warming up")
            with record_failure(workers, name):
                calibrated = worker.request(request, self._study.timeout)
                seconds.append(cost * min(calibrated.step_seconds))
                if calibrated.memory_in_use is not None:
                    run.record(MemoryMeasured(configuration=name, in_use=calibrated.memory_in_use))
        return budget.calibrate(seconds, steps_in_epoch) if seconds else None

    def _measure_round(self, workers: Workers, budget: RoundBudget, number: int, done: int) -> None:
        """Measure every operation in each worker, in random order."""
        assert budget.block is not None
        meter, idle_wait = RoundMeter(), self._session.idle_wait
        start, waited_before = time.monotonic(), idle_wait.measured_seconds
        spare = budget.start_round(done)
        for name in schedule.order_of_round(list(workers), self._study.seed, number, done):
            run, worker = workers[name]
            self._session.phase_timer.block_of(name, "measuring")
            with record_failure(workers, name):
                for operation in self._operations:
                    operation.measure(run, worker, budget, budget.block.steps)
        programs = [program.name for program in idle_wait.busiest_programs]
        waited_seconds = idle_wait.waited_seconds
        load = meter.stop(number, done)
        self._session.record(RoundMeasured(load=load, idle_wait_seconds=waited_seconds, busiest_programs=programs))
        for operation in self._operations:
            operation.end_round()
        rerun_seconds = spare - budget.spare_seconds
        waited = idle_wait.measured_seconds - waited_before
        budget.spend(time.monotonic() - start - rerun_seconds - waited, rerun_seconds)

    def _has_enough_rounds(self, group: _Group, done: int) -> bool:
        """Return whether more rounds per process would hardly narrow the final interval.

        Only the first process run decides, after the round numbers in `schedule.STOPPING_CHECKS`. Half the margin is
        enough, since the variation between rounds only has to be small relative to that between processes.
        """
        if done not in schedule.STOPPING_CHECKS:
            return False
        step_times = [run.step_times for run in self._active_runs(group)]
        margins = [margin_of_error(ratio(step_times[0], other)) for other in step_times[1:]]
        return all(margin <= self._study.margin / 2 for margin in margins)


def record_operations(run: ConfigurationRun, worker: WorkerProcess, repetitions: int, timeout: float) -> None:
    """Time the operations that a worker has built."""
    operations = worker.request(calls.time_layer_ops(repetitions), timeout)
    process, number = len(run.operations) - 1, len(run.operations[-1])
    name = run.configuration.name
    run.record(OperationsTimed(configuration=name, process=process, round=number, operations=operations))
