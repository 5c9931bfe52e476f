"""Samples a GPU twice a second while a timing block runs, in a thread of the parent.

Only this thread calls NVML during a block. A driver that has lost its GPU may block forever; then the thread
is abandoned. It is a daemon, so it does not keep the process alive.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

from polybench.machine.meters.nvml import Gpu
from polybench.machine.meters.usage import GpuUsage

INTERVAL_SECONDS = 0.5

NVML_TIMEOUT = 5.0
"""Seconds. A reading takes milliseconds; the first readings of a sleeping GPU take a second."""


class Sampler:
    """Samples between `start` and `stop`."""

    def __init__(self, gpu: Gpu, pid: int, gpu_workers: Collection[int]) -> None:
        self._gpu, self._pid, self._gpu_workers = gpu, pid, gpu_workers
        self._usage = GpuUsage()
        self._started, self._stop = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="polybench-sampler", daemon=True)

    def start(self) -> None:
        """Start, and return when the energy counter has been read."""
        self._thread.start()
        self._started.wait(NVML_TIMEOUT)

    def stop(self) -> GpuUsage | None:
        """Return the readings; None if NVML no longer responds."""
        self._stop.set()
        self._thread.join(NVML_TIMEOUT)
        return None if self._thread.is_alive() else self._usage

    def _run(self) -> None:
        try:
            self._sample_until_stopped()
        except Exception as error:
            self._usage.failures["GPU"] = f"{type(error).__name__}: {error}"
        finally:
            self._started.set()

    def _sample_until_stopped(self) -> None:
        usage, gpu = self._usage, self._gpu
        before, start = gpu.joules(usage.failures), time.monotonic()
        self._started.set()
        while not self._stop.wait(INTERVAL_SECONDS):
            usage.samples.append(gpu.sample(self._pid, self._gpu_workers, usage.failures))
        after, usage.seconds = gpu.joules(usage.failures), time.monotonic() - start
        # One more sample covers blocks shorter than the interval; the worker still holds its memory.
        usage.samples.append(gpu.sample(self._pid, self._gpu_workers, usage.failures))
        if before is not None and after is not None:
            usage.joules = after - before
