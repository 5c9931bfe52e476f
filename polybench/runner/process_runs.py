"""All process runs of a study, group by group; the document is saved after each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import ClassVar, NamedTuple

import msgspec

from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.machine.interference import InterferenceMeter, severity
from polybench.machine.load import IdleWait, RoundMeter
from polybench.machine.meters.observer import BlockUsage, Observer
from polybench.planning import schedule
from polybench.planning.plan import needs_native_count_process
from polybench.planning.schedule import CALIBRATION_STEPS, COUNTED_STEPS, RoundBudget, TimingBlocks
from polybench.protocol import calls
from polybench.protocol.calls import AnswerT, BlockMeasured, Loaded, Prepared, Request
from polybench.protocol.process import WorkerProcess
from polybench.results.document import measured_step_times
from polybench.results.run_state import ConfigurationRun
from polybench.runner.allocations import count_native_allocations
from polybench.runner.checkpoint import ConfigurationGroup
from polybench.runner.parity import StaleCheck, confirm_check
from polybench.runner.state import StudyState
from polybench.runner.workers import load_request, start_worker
from polybench.schema.metadata import RoundInterference
from polybench.schema.resources import BlockCounters
from polybench.stats.statistics import margin_of_error, ratio

Workers = dict[str, tuple[ConfigurationRun, WorkerProcess]]
"""Configuration name -> its run and its live worker."""


class ProcessRun:
    """Measures a group of configurations once per round, one at a time.

    Args:
        state: of the study.
        group: configurations whose workers run at the same time.
        round_budget: of this group; the first process run calibrates it.
        number: of this process run, from 0.
        block_runner: measures timing blocks.
    """

    def __init__(
        self,
        state: StudyState,
        group: Sequence[ConfigurationRun],
        round_budget: RoundBudget,
        number: int,
        block_runner: BlockRunner,
    ) -> None:
        self._state, self._group, self._round_budget = state, group, round_budget
        self._number, self._block_runner = number, block_runner
        self._study = state.plan.study
        self._timeout = self._study.timeout

    relative_step_cost: ClassVar[float] = 1.0
    """Duration of all measurements per timed step, relative to the step."""
    reports_startup: ClassVar[bool] = True

    def run(self, on_timing_finished: Callable[[], None] | None = None) -> None:
        """Start, warm up, measure, count and close. A configuration that fails records the reason.

        Args:
            on_timing_finished: called between the last timing and the count of native allocations.
        """
        label = f"process {self._number + 1} of {self._study.processes}"
        self._state.progress.on_stage(f"{label}: starting {', '.join(r.configuration.name for r in self._group)}")
        timer = self._state.phase_timer
        with contextlib.ExitStack() as stack:
            with timer.phase("process_starts"):
                workers = stack.enter_context(self._start_workers())
                self._warm_up(workers)
            self._round_budget.start_process_run()
            self._block_runner.idle_wait.wait_until_idle()
            with timer.phase("rounds"):
                block = self._run_rounds(workers, label)
            if self._number == 0 and block is not None:
                with timer.phase("allocation_count"):
                    self._count_allocations(workers)
                    self._time_pipeline_and_training(workers, block)
                    self._time_allreduce(workers, block)
            if self._is_last and not needs_native_count_process(self._study):
                if on_timing_finished is not None:
                    on_timing_finished()
                count_native_allocations(self._state, workers.values())

    @property
    def _is_last(self) -> bool:
        return self._number == self._study.processes - 1

    def _run_rounds(self, workers: Workers, label: str) -> TimingBlocks | None:
        """Run all rounds; returns None if every configuration has failed."""
        block = self._calibrate(workers)
        done = 0
        while workers and block is not None and self._round_budget.has_another_round(done):
            self._state.progress.on_stage(f"{label}: round {done + 1} of {block.rounds}")
            self._state.interference.append(self._run_round(workers, block, done))
            self._state.report_progress()
            done += 1
            if self._has_enough_rounds(done):
                self._round_budget.stop_after(done)
        return block

    @contextlib.contextmanager
    def _start_workers(self) -> Iterator[Workers]:
        workers: Workers = {}
        with contextlib.ExitStack() as stack:
            for run in self._group:
                workers[run.configuration.name] = run, stack.enter_context(self._start_worker(run))
            yield workers

    @contextlib.contextmanager
    def _start_worker(self, run: ConfigurationRun) -> Iterator[WorkerProcess]:
        """Start a worker, and record how much GPU memory its end frees, whatever other processes use."""
        # The first process starts cold, like a user's own, because polybench reports its startup.
        cold = self.reports_startup and self._number == 0
        with start_worker(run, self._state.logs, str(self._number), cold=cold) as worker:
            yield worker
            before = self._gpu_bytes(run)
        after = self._gpu_bytes(run)
        if before is not None and after is not None and before > after:
            run.gpu_bytes_freed = max(run.gpu_bytes_freed or 0, before - after)

    def _gpu_bytes(self, run: ConfigurationRun) -> int | None:
        observer = self._block_runner.observer
        return observer.used_gpu_bytes(run.configuration.device) if observer else None

    def _warm_up(self, workers: Workers) -> None:
        """Load engines and build jobs; raises StaleCheck if a cached check does not match the loaded code."""
        stale: list[ConfigurationRun] = []

        def record_info(run: ConfigurationRun, loaded: Loaded) -> None:
            if not confirm_check(run, loaded):
                stale.append(run)
            run.engine_info = loaded.info

        self._request_all(workers, load_request, record_info)
        if stale:
            raise StaleCheck
        self._request_all(workers, self._state.prepare_request, _record_startup)
        for run, _ in workers.values():
            run.start_process_run()

    def _request_all(
        self,
        workers: Workers,
        make_request: Callable[[ConfigurationRun], Request[AnswerT]],
        on_response: Callable[[ConfigurationRun, AnswerT], None],
    ) -> None:
        """Send a request to every worker, then receive the responses; a worker that fails is removed."""
        requests = {name: make_request(run) for name, (run, _) in workers.items()}
        for name, (_, worker) in workers.items():
            worker.send(requests[name])
        for name in list(workers):
            run, worker = workers[name]
            with self._record_failure(workers, name):
                on_response(run, worker.receive(requests[name], self._timeout))

    @contextlib.contextmanager
    def _record_failure(self, workers: Workers, name: str) -> Iterator[None]:
        run, worker = workers[name]
        try:
            yield
        except (ConfigurationFailed, EngineUnavailable) as error:
            run.mark_failed(error, worker.log_path)
            worker.kill()
            del workers[name]

    def _calibrate(self, workers: Workers) -> TimingBlocks | None:
        """Run one block per configuration, to warm it up and to get step times for the round budget.

        Returns:
            None if every configuration has failed.
        """
        steps_in_epoch = self._state.files.steps_in_epoch
        request, seconds = calls.measure_block(min(CALIBRATION_STEPS, steps_in_epoch)), []
        for name in list(workers):
            _, worker = workers[name]
            with self._record_failure(workers, name):
                measured = worker.request(request, self._timeout)
                seconds.append(self.relative_step_cost * min(measured.step_times))
        return self._round_budget.calibrate(seconds, steps_in_epoch) if seconds else None

    def _run_round(self, workers: Workers, block: TimingBlocks, number: int) -> RoundInterference:
        meter = RoundMeter()
        idle_wait = self._block_runner.idle_wait
        start, waited_before = time.monotonic(), idle_wait.waited_seconds
        self._block_runner.rerun_budget_seconds = rerun_budget = self._round_budget.spare_seconds(number)
        for name in schedule.order_of_round(list(workers), self._study.seed, self._number, number):
            self._measure_block(workers, name, block)
        rerun_seconds = rerun_budget - self._block_runner.rerun_budget_seconds
        waited = idle_wait.waited_seconds - waited_before
        self._round_budget.spend(time.monotonic() - start - rerun_seconds - waited, rerun_seconds)
        return meter.stop(self._number, number)

    def _measure_block(self, workers: Workers, name: str, block: TimingBlocks) -> None:
        run, worker = workers[name]
        request = calls.measure_block(block.steps, self._study.injected_delays.get(name, 0.0))
        on_gpus = [other.pid for other_run, other in workers.values() if other_run.configuration.device != "cpu"]
        with self._record_failure(workers, name):
            run.add_block(*self._block_runner.run(worker, request, run.configuration.device, on_gpus))

    def _has_enough_rounds(self, done: int) -> bool:
        """Return whether more rounds per process would hardly narrow the final interval.

        Only the first process run decides, after the round numbers in `schedule.STOPPING_CHECKS`. Half the margin is
        enough, since the variation between rounds only has to be small relative to that between processes.
        """
        if self._number or not self._round_budget.is_adaptive or done not in schedule.STOPPING_CHECKS:
            return False
        step_times = [measured_step_times(run) for run in self._group if run.is_active]
        widths = [margin_of_error(ratio(step_times[0], other)) for other in step_times[1:]]
        return all(width <= self._study.margin / 2 for width in widths)

    def _count_allocations(self, workers: Workers) -> None:
        """Measure memory and count allocations, after all timing in these processes."""
        if not self._study.metrics:
            return
        request = calls.count_allocations(min(COUNTED_STEPS, self._state.files.steps_in_epoch))
        for run, worker in workers.values():
            try:
                counted = worker.request(request, self._timeout)
            except (ConfigurationFailed, EngineUnavailable) as error:
                run.warnings.append(f"cannot measure memory and allocations: {error}")
            else:
                run.memory, run.allocations = counted.memory, counted.allocations

    def _time_pipeline_and_training(self, workers: Workers, block: TimingBlocks) -> None:
        """Time the pipeline and training separately, last, because batches are preloaded afterwards."""
        if self._state.files.stream is None:
            return
        for run, worker in workers.values():
            try:
                run.pipeline_and_training = worker.request(calls.time_pipeline_and_training(block.steps), self._timeout)
            except (ConfigurationFailed, EngineUnavailable) as error:
                run.warnings.append(f"cannot time pipeline and training separately: {error}")

    def _time_allreduce(self, workers: Workers, block: TimingBlocks) -> None:
        """Time the all-reduce of gradients in data-parallel training."""
        for run, worker in workers.values() if self._study.metrics else ():
            if run.configuration.replicas == 1:
                continue
            try:
                run.allreduce_times = worker.request(calls.time_allreduce(block.steps), self._timeout)
            except (ConfigurationFailed, EngineUnavailable) as error:
                run.warnings.append(f"cannot time the all-reduce of gradients: {error}")


def _record_startup(run: ConfigurationRun, prepared: Prepared) -> None:
    run.startups.append(prepared.startup)
    run.resolution = prepared.timing_resolution
    run.losses = prepared.losses


_MAX_RERUNS = 3
"""Per block. More frequent interference is likely to continue."""


class BlockResult(NamedTuple):
    """A worker's measurement of a block, and observations from outside the worker."""

    measured: BlockMeasured
    counters: BlockCounters
    usage: BlockUsage | None


class BlockRunner:
    """Runs the timing blocks of a study.

    Args:
        observer: observes the resource usage of workers, if wanted.
        idle_wait: of the whole study.
        timeout: maximum wait for a worker's response, in seconds.

    Attributes:
        rerun_budget_seconds: time for re-measuring blocks; the caller sets it before each round.
    """

    def __init__(self, observer: Observer | None, idle_wait: IdleWait, timeout: float) -> None:
        self.observer, self.idle_wait = observer, idle_wait
        self.rerun_budget_seconds = 0.0
        self._timeout = timeout
        self._meter = InterferenceMeter()

    def run(
        self, worker: WorkerProcess, request: Request[BlockMeasured], device: str, on_gpus: Collection[int]
    ) -> BlockResult:
        """Measure a block, and re-measure it while there is interference and time left.

        The kernel's counters, not the measured times, decide whether to re-measure and which measurement
        counts.

        Args:
            worker: built, loaded and warm.
            request: the block.
            device: of the worker.
            on_gpus: process IDs of all workers that may be on a GPU now.

        Returns:
            The measurement with the least interference.

        Raises:
            ConfigurationFailed: the worker failed, died or hung.
        """
        best = self._run_once(worker, request, device, on_gpus)
        reruns = 0
        while best.counters.affected:
            self.idle_wait.after_interference()
            if reruns == _MAX_RERUNS or best.counters.wall_seconds > self.rerun_budget_seconds:
                break
            rerun = self._run_once(worker, request, device, on_gpus)
            reruns += 1
            self.rerun_budget_seconds -= rerun.counters.wall_seconds
            best = min(best, rerun, key=lambda result: severity(result.counters))
        return best._replace(counters=msgspec.structs.replace(best.counters, reruns=reruns))

    def _run_once(
        self, worker: WorkerProcess, request: Request[BlockMeasured], device: str, on_gpus: Collection[int]
    ) -> BlockResult:
        observation = self.observer.watch_block(worker.pid, device, on_gpus) if self.observer else None
        with observation or contextlib.nullcontext() as usage:
            meter = self._meter.start(worker.pid)
            measured = worker.request(request, self._timeout)
            counters = meter.stop()
        return BlockResult(measured, counters, usage)


def run_all(
    state: StudyState, observer: Observer | None, process_run_type: Callable[..., ProcessRun] = ProcessRun
) -> None:
    """Measure every active configuration in `--processes` process runs.

    If memory cannot hold all workers at once, configurations form groups, which stay the same in all process
    runs. Each group has its own part of the budget and its own round budget, because step times may differ by
    a factor of a hundred.

    Args:
        state: of the study; its configuration runs receive the step times.
        observer: observes the workers; None if only times are wanted.
        process_run_type: makes a process run from the arguments of `ProcessRun`.

    Raises:
        StaleCheck: a cached check is not valid, or cannot be confirmed in time. No configuration has been
            measured in that case.
    """
    study, completed = state.plan.study, state.completed
    groups = _groups(state)
    if len(groups) > 1:
        state.warn(f"memory cannot hold all workers at once: measuring {len(groups)} groups, one after the other")
        _require_confirmed_checks(state.active_runs)
    idle_wait = IdleWait(study.wait_idle, state.progress.on_stage)
    idle_wait.waited_seconds = state.idle_wait_seconds
    block_runner = BlockRunner(observer, idle_wait, study.timeout)
    state.phase_timer.plan_process_runs(study.processes - completed.process_runs, len(groups))

    def save_finished(number: int) -> None:
        state.timing_blocks = [budget.block for _, budget in groups if budget.block is not None]
        state.cut_short = any(budget.cut_short for _, budget in groups)
        state.record_idle_wait(idle_wait)
        completed.process_runs = number + 1
        completed.groups = [
            ConfigurationGroup([run.configuration.name for run in group], budget.state) for group, budget in groups
        ]
        state.save()

    for number in range(completed.process_runs, study.processes):
        if not state.active_runs:
            return
        for index, (group, budget) in enumerate(groups):
            state.phase_timer.group = index
            active = [run for run in group if run.is_active]
            if active:
                # Saves before native allocations are counted: a resumed study counts them separately.
                on_timing_finished = partial(save_finished, number) if index == len(groups) - 1 else None
                process_run_type(state, active, budget, number, block_runner).run(on_timing_finished)
            if not any(run.is_active for run in group):
                state.phase_timer.drop_group(index)
        completed.native_allocations = number + 1 == study.processes and not needs_native_count_process(study)
        save_finished(number)


def _require_confirmed_checks(runs: Sequence[ConfigurationRun]) -> None:
    """Discard unconfirmed cached checks, because workers of later groups would confirm them too late."""
    unconfirmed = [run for run in runs if run.cached_worker_info is not None]
    for run in unconfirmed:
        run.discard_check()
    if unconfirmed:
        raise StaleCheck


def _groups(state: StudyState) -> list[tuple[list[ConfigurationRun], RoundBudget]]:
    """Return the configuration groups and their round budgets, unchanged if the study is resumed."""
    study, active = state.plan.study, state.active_runs
    if not state.completed.groups:
        return [(group, RoundBudget(study, len(group) / len(active))) for group in state.group_by_memory(active)]
    by_name = {run.configuration.name: run for run in state.runs}
    groups = []
    for group in state.completed.groups:
        budget = RoundBudget(study)
        budget.restore(group.round_budget)
        groups.append(([by_name[name] for name in group.configurations], budget))
    state.timing_blocks = [budget.block for _, budget in groups if budget.block is not None]
    state.cut_short = any(budget.cut_short for _, budget in groups)
    return groups
