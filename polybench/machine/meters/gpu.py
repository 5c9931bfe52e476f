"""GPU readings through NVML, the library of NVIDIA's driver (nvidia-ml-py's `pynvml`).

https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

Value = TypeVar("Value")

THROTTLE_REASON_NAMES = {
    0x02: "application clocks",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
"""Bit -> name, from nvml.h (nvmlClocksEventReasons), without an idle GPU (1) and displays (0x100)."""

THROTTLED = 0x04 | 0x08 | 0x20 | 0x40 | 0x80
"""Unintended reasons: heat and power. Clocks set by the user are intended."""

SAMPLE_SECONDS = 0.5
"""Interval between two samples."""

NVML_TIMEOUT = 5.0
"""Seconds. A reading takes milliseconds; the first readings of a sleeping GPU take a second."""


@dataclass
class GpuSample:
    """Sample of a GPU. None: the reading failed for the reason in `GpuUsage.failures`.

    `gpu_percent` covers NVML's own window of 1/6 to 1 second. `power` is in W, clocks are in MHz,
    `temperature` is in degrees Celsius. `throttle_reasons` are NVML's bits. `memory_bytes` is the worker's
    memory. `other_processes` counts processes on the GPU that are not workers of this study; None if unknown.
    """

    gpu_percent: float | None = None
    power: float | None = None
    sm_clock: float | None = None
    memory_clock: float | None = None
    temperature: float | None = None
    throttle_reasons: int | None = None
    memory_bytes: int | None = None
    other_processes: int | None = None


@dataclass
class GpuUsage:
    """Readings of a GPU during one block; `joules` and `seconds` are between two readings of its energy counter.

    `failures` maps readings that failed to the reason.
    """

    seconds: float = 0.0
    joules: float | None = None
    samples: list[GpuSample] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


class Gpu:
    """A device. Unsupported readings are None, with the reason in the `failures` argument."""

    def __init__(self, index: int) -> None:
        import pynvml

        self._nvml = pynvml
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)

    def joules(self, failures: dict[str, str]) -> float | None:
        """Return the energy counter, which is updated every 20 to 100 ms; only since Volta."""
        read = self._nvml.nvmlDeviceGetTotalEnergyConsumption
        return self._read("energy", lambda: read(self._handle) / 1e3, failures)

    def used_bytes(self) -> int | None:
        """Return the used memory of the whole device; None if it is not reported."""
        return self._read("memory", lambda: int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used), {})

    def sample(self, pid: int, gpu_workers: Collection[int], failures: dict[str, str]) -> GpuSample:
        """Read all sensors once; `failures` receives the reasons of readings that failed.

        `pid` is the worker that is measured, one of all `gpu_workers` that may use a GPU now.
        """
        nvml, handle = self._nvml, self._handle

        def read(what: str, reading: Callable[[], Value]) -> Value | None:
            return self._read(what, reading, failures)

        running = read("processes", lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle))
        bytes_by_pid = {process.pid: process.usedGpuMemory for process in running or ()}
        # In a container the driver may list processes by the host's IDs, or this study's with 0 bytes. Then both
        # the worker's bytes and the owners of the other processes are unknown.
        is_listed = pid in bytes_by_pid
        return GpuSample(
            gpu_percent=read("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            power=read("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3),
            sm_clock=read("clocks", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
            memory_clock=read("clocks", lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
            temperature=read("temperature", lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
            throttle_reasons=read("throttling", self._throttle_reasons),
            memory_bytes=bytes_by_pid.get(pid) or None,
            other_processes=len(bytes_by_pid.keys() - set(gpu_workers)) if is_listed else None,
        )

    def _throttle_reasons(self) -> int:
        try:
            return int(self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
        except self._nvml.NVMLError:  # drivers before 535 have only its old name
            return int(self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))

    def _read(self, what: str, read: Callable[[], Value], failures: dict[str, str]) -> Value | None:
        try:
            return read()
        except self._nvml.NVMLError as error:
            failures[what] = str(error)
            return None


class Sampler:
    """Samples a GPU twice a second between `start` and `stop`, in a thread of the parent.

    Only this thread calls NVML during a block. A driver that has lost its GPU may block forever; then the thread
    is abandoned. It is a daemon, so it does not keep the process alive.
    """

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
        while not self._stop.wait(SAMPLE_SECONDS):
            usage.samples.append(gpu.sample(self._pid, self._gpu_workers, usage.failures))
        after, usage.seconds = gpu.joules(usage.failures), time.monotonic() - start
        # One more sample covers blocks shorter than the interval; the worker still holds its memory.
        usage.samples.append(gpu.sample(self._pid, self._gpu_workers, usage.failures))
        if before is not None and after is not None:
            usage.joules = after - before


def nvml_index(device: str, environment: Mapping[str, str], uuids: Sequence[str], names: Sequence[str]) -> int:
    """Return NVML's index of `cuda` or `cuda:1`: CUDA numbers the visible devices in an order of its own.

    https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables
    `uuids` and `names` are NVML's, of all GPUs in the order of the PCI bus. Raises LookupError, with the reason and
    a fix, if the device does not exist or its index is ambiguous.
    """
    index = int(device.partition(":")[2] or 0)
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    tokens = [str(n) for n in range(len(uuids))] if visible is None else _valid_prefix(visible, uuids)
    if index >= len(tokens):
        raise LookupError(f"{device} is not among the visible GPUs (CUDA_VISIBLE_DEVICES={visible or ''})")
    token = tokens[index]
    if token.startswith("MIG"):
        raise LookupError(f"{device} is a MIG partition of a GPU, for which NVML has no separate readings")
    if not token.isdigit():
        return next(n for n, uuid in enumerate(uuids) if uuid.startswith(token))
    # CUDA's default order is fastest first; for equal GPUs that is the order of the bus.
    if environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len(set(names)) > 1:
        raise LookupError(f"{device} is ambiguous, since the GPUs differ: set CUDA_DEVICE_ORDER=PCI_BUS_ID")
    return int(token)


def _valid_prefix(visible: str, uuids: Sequence[str]) -> list[str]:
    """Return the devices before the first invalid one, as CUDA does; a unique prefix of a UUID is valid."""
    tokens: list[str] = []
    for token in (part.strip() for part in visible.split(",")):
        matches = sum(uuid.startswith(token) for uuid in uuids)
        known = (token.isdigit() and int(token) < len(uuids)) or (token.startswith("GPU-") and matches == 1)
        if not known and not token.startswith("MIG-"):
            break
        tokens.append(token)
    return tokens
