"""GPU readings through NVML, the library of NVIDIA's driver (nvidia-ml-py's `pynvml`).

https://docs.nvidia.com/deploy/nvml-api/
"""

# ruff: noqa: D102, N802, N815 - the names are NVML's, and its manual describes them

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar, cast

from polybench.machine.meters.usage import GpuSample

Value = TypeVar("Value")
Handle = Any

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


class Rates(Protocol):
    """Utilization; `gpu` is the percentage of time in which a kernel ran."""

    gpu: int


class DeviceMemory(Protocol):
    """Memory of a device; `used` is in bytes."""

    used: int


class RunningProcess(Protocol):
    """Process on a GPU; `usedGpuMemory` is in bytes, None if the driver does not report it."""

    pid: int
    usedGpuMemory: int | None


class Nvml(Protocol):
    """The part of pynvml that polybench uses. All functions raise NVMLError with NVML's own text."""

    NVMLError: type[Exception]
    NVML_CLOCK_SM: int
    NVML_CLOCK_MEM: int
    NVML_TEMPERATURE_GPU: int

    def nvmlInit(self) -> None: ...
    def nvmlShutdown(self) -> None: ...
    def nvmlDeviceGetCount(self) -> int: ...
    def nvmlDeviceGetHandleByIndex(self, index: int) -> Handle: ...
    def nvmlDeviceGetName(self, handle: Handle) -> str: ...
    def nvmlDeviceGetUUID(self, handle: Handle) -> str: ...
    def nvmlDeviceGetUtilizationRates(self, handle: Handle) -> Rates: ...
    def nvmlDeviceGetPowerUsage(self, handle: Handle) -> int:
        """Milliwatts."""
        ...

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Handle) -> int:
        """Millijoules since the driver was loaded; Volta or newer."""
        ...

    def nvmlDeviceGetClockInfo(self, handle: Handle, type: int) -> int:
        """MHz."""
        ...

    def nvmlDeviceGetTemperature(self, handle: Handle, sensor: int) -> int:
        """Degrees Celsius."""
        ...

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Handle) -> int: ...
    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Handle) -> int:
        """Old name of the same function, the only one in drivers before 535."""
        ...

    def nvmlDeviceGetMemoryInfo(self, handle: Handle) -> DeviceMemory: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Handle) -> Sequence[RunningProcess]: ...


def load() -> Nvml:
    """Import pynvml."""
    import pynvml

    return cast("Nvml", pynvml)


class Gpu:
    """A device. Unsupported readings are None, with the reason in the `failures` argument."""

    def __init__(self, nvml: Nvml, index: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def joules(self, failures: dict[str, str]) -> float | None:
        """Return the energy counter, which is updated every 20 to 100 ms."""
        return self._read(
            "energy", lambda: self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1e3, failures
        )

    def used_bytes(self) -> int | None:
        """Return the used memory of the whole device; None if it is not reported."""
        return self._read("memory", lambda: self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used, {})

    def sample(self, pid: int, gpu_workers: Collection[int], failures: dict[str, str]) -> GpuSample:
        """Read all sensors once.

        Args:
            pid: the worker that is measured.
            gpu_workers: process IDs of all workers that may use a GPU now, including `pid`.
            failures: receives readings that failed -> reason.
        """
        nvml, handle = self._nvml, self._handle
        memory, other_processes = self._processes(pid, gpu_workers, failures)
        return GpuSample(
            gpu_percent=self._read("utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu, failures),
            power=self._read("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3, failures),
            sm_clock=self._clock(nvml.NVML_CLOCK_SM, failures),
            memory_clock=self._clock(nvml.NVML_CLOCK_MEM, failures),
            temperature=self._read(
                "temperature",
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
                failures,
            ),
            throttle_reasons=self._read("throttling", self._throttle_reasons, failures),
            memory_bytes=memory,
            other_processes=other_processes,
        )

    def _clock(self, which: int, failures: dict[str, str]) -> float | None:
        return self._read("clocks", lambda: self._nvml.nvmlDeviceGetClockInfo(self._handle, which), failures)

    def _throttle_reasons(self) -> int:
        try:
            return self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
        except self._nvml.NVMLError:
            return self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)

    def _processes(
        self, pid: int, gpu_workers: Collection[int], failures: dict[str, str]
    ) -> tuple[int | None, int | None]:
        """Return the worker's bytes and the number of processes that do not belong to this study.

        In a container the driver may list processes by the host's IDs, or this study's with 0 bytes. Then
        both the worker's bytes and the owners of the other processes are unknown.
        """
        running = self._read(
            "processes", lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle), failures
        )
        by_pid = {process.pid: process.usedGpuMemory for process in running or ()}
        if pid not in by_pid:
            return None, None
        return by_pid[pid] or None, len(by_pid.keys() - set(gpu_workers))

    def _read(self, what: str, read: Callable[[], Value], failures: dict[str, str]) -> Value | None:
        try:
            return read()
        except self._nvml.NVMLError as error:
            failures[what] = str(error)
            return None
