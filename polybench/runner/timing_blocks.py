"""Runs timing blocks, observes them from outside, and re-measures those with interference."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from polybench.machine.interference import InterferenceMeter, severity
from polybench.machine.load import IdleWait
from polybench.machine.meters.observer import BlockUsage, Observer
from polybench.protocol.messages import BlockMeasured, MeasureBlock
from polybench.protocol.process import WorkerProcess
from polybench.schema.resources import BlockCounters

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

    def run(self, worker: WorkerProcess, request: MeasureBlock, device: str, on_gpus: Collection[int]) -> BlockResult:
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
        self, worker: WorkerProcess, request: MeasureBlock, device: str, on_gpus: Collection[int]
    ) -> BlockResult:
        observation = self.observer.watch_block(worker.pid, device, on_gpus) if self.observer else None
        with observation or contextlib.nullcontext() as usage:
            meter = self._meter.start(worker.pid)
            measured = worker.request(request, BlockMeasured, self._timeout)
            counters = meter.stop()
        return BlockResult(measured, counters, usage)
