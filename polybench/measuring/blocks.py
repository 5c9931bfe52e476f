"""One block of one worker, watched from outside, and measured again where others disturbed it."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import NamedTuple

import msgspec

from polybench.core.document.resources import BlockReading
from polybench.machine.disturbance import DisturbanceMeter, severity
from polybench.machine.meters.observer import Observer
from polybench.machine.meters.usage import BlockUsage
from polybench.machine.patience import Patience
from polybench.wire.messages import Measure, Measured
from polybench.wire.process import WorkerProcess

_MOST_REPEATS = 3
"""Of one block: what disturbs that often will go on."""


class BlockResult(NamedTuple):
    """What a worker says of a block, and what was seen from outside."""

    measured: Measured
    reading: BlockReading
    usage: BlockUsage | None


class Blocks:
    """How the blocks of a study are measured.

    Args:
        observer: watches what a worker uses, where that is wanted.
        patience: of the whole study.
        timeout: of one request, in seconds.

    Attributes:
        spare: seconds that may go into repeats; set anew before each round.
    """

    def __init__(self, observer: Observer | None, patience: Patience, timeout: float) -> None:
        self.observer, self.patience = observer, patience
        self.spare = 0.0
        self._timeout = timeout
        self._meter = DisturbanceMeter()

    def measure(
        self, worker: WorkerProcess, request: Measure, device: str, on_gpus: Collection[int]
    ) -> BlockResult:
        """Measure a block, and again while others disturbed it and there is time to spare.

        Whether it is measured again, and which measurement counts, is decided by what the kernel says of
        the machine, never by the measured times.

        Args:
            worker: built, loaded and warm.
            request: the block.
            device: of the worker.
            on_gpus: all workers that may be on a GPU now.

        Returns:
            Of the measurement that was least disturbed.

        Raises:
            CellFailed: the worker failed, died or hung.
        """
        best = self._once(worker, request, device, on_gpus)
        repeats = 0
        while best.reading.disturbed:
            self.patience.disturbed()
            if repeats == _MOST_REPEATS or best.reading.wall_seconds > self.spare:
                break
            again = self._once(worker, request, device, on_gpus)
            repeats += 1
            self.spare -= again.reading.wall_seconds
            best = min(best, again, key=lambda result: severity(result.reading))
        return best._replace(reading=msgspec.structs.replace(best.reading, repeats=repeats))

    def _once(
        self, worker: WorkerProcess, request: Measure, device: str, on_gpus: Collection[int]
    ) -> BlockResult:
        watched = self.observer.block(worker.pid, device, on_gpus) if self.observer else None
        with watched or contextlib.nullcontext() as usage:
            meter = self._meter.start(worker.pid)
            answer = worker.ask(request, Measured, self._timeout)
            reading = meter.stop()
        return BlockResult(answer, reading, usage)
