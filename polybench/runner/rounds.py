"""A process run: a new process per configuration; they start in parallel and are measured in rounds."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, TypeVar

import msgspec

from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.machine.load import RoundMeter
from polybench.planning import schedule
from polybench.planning.plan import needs_native_count_process
from polybench.planning.schedule import CALIBRATION_STEPS, COUNTED_STEPS, RoundBudget, TimingBlocks
from polybench.protocol.allreduce_messages import AllReduceTimed, TimeAllReduce
from polybench.protocol.messages import (
    AllocationsCounted,
    BlockMeasured,
    CountAllocations,
    Loaded,
    MeasureBlock,
    PipelineAndTrainingTimed,
    Prepared,
    Request,
    TimePipelineAndTraining,
)
from polybench.protocol.process import WorkerProcess
from polybench.results.document import measured_step_times
from polybench.results.run_state import ConfigurationRun
from polybench.runner.cached_checks import StaleCheck, confirm_check
from polybench.runner.native_allocations import count_native_allocations
from polybench.runner.state import StudyState
from polybench.runner.timing_blocks import BlockRunner
from polybench.runner.workers import load_request, start_worker
from polybench.schema.metadata import RoundInterference
from polybench.stats.statistics import ratio, relative_half_width

ResponseT = TypeVar("ResponseT", bound=msgspec.Struct)

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

        self._request_all(workers, load_request, Loaded, record_info)
        if stale:
            raise StaleCheck
        self._request_all(workers, self._state.prepare_request, Prepared, _record_startup)
        for run, _ in workers.values():
            run.start_process_run()

    def _request_all(
        self,
        workers: Workers,
        make_request: Callable[[ConfigurationRun], Request],
        response_type: type[ResponseT],
        on_response: Callable[[ConfigurationRun, ResponseT], None],
    ) -> None:
        """Send a request to every worker, then receive the responses; a worker that fails is removed."""
        requests = {name: make_request(run) for name, (run, _) in workers.items()}
        for name, (_, worker) in workers.items():
            worker.send(requests[name])
        for name in list(workers):
            run, worker = workers[name]
            with self._record_failure(workers, name):
                on_response(run, worker.receive(requests[name], response_type, self._timeout))

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
        request, seconds = MeasureBlock(min(CALIBRATION_STEPS, steps_in_epoch)), []
        for name in list(workers):
            _, worker = workers[name]
            with self._record_failure(workers, name):
                measured = worker.request(request, BlockMeasured, self._timeout)
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
        request = MeasureBlock(block.steps, self._study.injected_delays.get(name, 0.0))
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
        widths = [relative_half_width(ratio(step_times[0], other)) for other in step_times[1:]]
        return all(width <= self._study.margin / 2 for width in widths)

    def _count_allocations(self, workers: Workers) -> None:
        """Measure memory and count allocations, after all timing in these processes."""
        if not self._study.metrics:
            return
        request = CountAllocations(min(COUNTED_STEPS, self._state.files.steps_in_epoch))
        for run, worker in workers.values():
            try:
                counted = worker.request(request, AllocationsCounted, self._timeout)
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
                run.pipeline_and_training = worker.request(
                    TimePipelineAndTraining(block.steps), PipelineAndTrainingTimed, self._timeout
                )
            except (ConfigurationFailed, EngineUnavailable) as error:
                run.warnings.append(f"cannot time pipeline and training separately: {error}")

    def _time_allreduce(self, workers: Workers, block: TimingBlocks) -> None:
        """Time the all-reduce of gradients in data-parallel training."""
        for run, worker in workers.values() if self._study.metrics else ():
            if run.configuration.replicas == 1:
                continue
            try:
                run.allreduce_times = worker.request(TimeAllReduce(block.steps), AllReduceTimed, self._timeout)
            except (ConfigurationFailed, EngineUnavailable) as error:
                run.warnings.append(f"cannot time the all-reduce of gradients: {error}")


def _record_startup(run: ConfigurationRun, prepared: Prepared) -> None:
    run.startups.append(prepared.startup)
    run.resolution = prepared.timing_resolution
    run.losses = prepared.losses
