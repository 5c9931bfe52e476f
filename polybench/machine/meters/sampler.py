"""Looks at a GPU twice a second while one block runs, from a thread of the parent.

Only this thread asks NVML anything during a block: a driver that has lost its GPU may never answer, and then
the thread is left behind. It is a daemon, so it does not keep the process alive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from polybench.machine.meters.nvml import Gpu
from polybench.machine.meters.usage import GpuUsage

INTERVAL_SECONDS = 0.5

PATIENCE_SECONDS = 5.0
"""A reading takes milliseconds; the first ones of a GPU that was asleep, a second."""


class Sampler:
    """Between `start` and `stop`."""

    def __init__(self, gpu: Gpu, pid: int, gpu_workers: Collection[int]) -> None:
        self._gpu, self._pid, self._gpu_workers = gpu, pid, gpu_workers
        self._usage = GpuUsage()
        self._started, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="polybench-sampler", daemon=True)

    def start(self) -> None:
        """Returns when the energy counter has been read."""
        self._thread.start()
        self._started.wait(PATIENCE_SECONDS)

    def stop(self) -> GpuUsage | None:
        """What was seen; None when NVML does not answer any more."""
        self._over.set()
        self._thread.join(PATIENCE_SECONDS)
        return None if self._thread.is_alive() else self._usage

    def _run(self) -> None:
        try:
            self._observe()
        except Exception as error:
            self._usage.failures["GPU"] = f"{type(error).__name__}: {error}"
        finally:
            self._started.set()

    def _observe(self) -> None:
        usage, gpu = self._usage, self._gpu
        before, start = gpu.joules(usage.failures), time.monotonic()
        self._started.set()
        while not self._over.wait(INTERVAL_SECONDS):
            usage.samples.append(gpu.sample(self._pid, self._gpu_workers, usage.failures))
        after, usage.seconds = gpu.joules(usage.failures), time.monotonic() - start
        # The last look is for blocks shorter than the interval; the worker still has its memory.
        usage.samples.append(gpu.sample(self._pid, self._gpu_workers, usage.failures))
        if before is not None and after is not None:
            usage.joules = after - before
