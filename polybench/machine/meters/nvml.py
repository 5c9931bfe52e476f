"""The GPU's own readings through NVML, the library of NVIDIA's driver (nvidia-ml-py's `pynvml`).

https://docs.nvidia.com/deploy/nvml-api/
"""

# ruff: noqa: D102, N802, N815 - the names are NVML's, and its manual describes them

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol, TypeVar, cast

from polybench.machine.meters.usage import GpuSample

Value = TypeVar("Value")
Handle = Any

THROTTLE_REASONS = {
    0x02: "application clocks",
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "sync boost",
    0x20: "thermal (software)",
    0x40: "thermal (hardware)",
    0x80: "power brake",
}
"""nvml.h, nvmlClocksEventReasons: bit -> name. Left out: that the GPU is idle (1), and displays (0x100)."""

THROTTLED = 0x04 | 0x08 | 0x20 | 0x40 | 0x80
"""What slows a GPU down that was not asked for: heat and power. Clocks set by the user are no accident."""


class Rates(Protocol):
    """`gpu`: percent of the time in which a kernel ran."""

    gpu: int


class DeviceMemory(Protocol):
    """`used`: bytes."""

    used: int


class RunningProcess(Protocol):
    """`usedGpuMemory`: bytes; None where the driver does not say."""

    pid: int
    usedGpuMemory: int | None


class Nvml(Protocol):
    """What is used of pynvml. All functions raise NVMLError, whose text is NVML's own."""

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
        """Millijoules since the driver was loaded; since Volta."""
        ...

    def nvmlDeviceGetClockInfo(self, handle: Handle, type: int) -> int:
        """MHz."""
        ...

    def nvmlDeviceGetTemperature(self, handle: Handle, sensor: int) -> int:
        """Degrees Celsius."""
        ...

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: Handle) -> int: ...
    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Handle) -> int:
        """The same by its old name: all that drivers before 535 know."""
        ...

    def nvmlDeviceGetMemoryInfo(self, handle: Handle) -> DeviceMemory: ...
    def nvmlDeviceGetComputeRunningProcesses(self, handle: Handle) -> Sequence[RunningProcess]: ...


def load() -> Nvml:
    """The real one."""
    import pynvml

    return cast("Nvml", pynvml)


class Gpu:
    """One device. Whatever it does not tell is None, and why is in the `failures` that are passed."""

    def __init__(self, nvml: Nvml, index: int) -> None:
        self._nvml = nvml
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def joules(self, failures: dict[str, str]) -> float | None:
        """The energy counter; counts in steps of some 20 to 100 ms."""
        return self._try(
            "energy", lambda: self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle) / 1e3, failures
        )

    def used_bytes(self) -> int | None:
        """Of the whole device; None if it does not say."""
        return self._try("memory", lambda: self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used, {})

    def sample(self, pid: int, gpu_workers: Collection[int], failures: dict[str, str]) -> GpuSample:
        """Look once.

        Args:
            pid: the worker that is measured.
            gpu_workers: all workers that may be on a GPU now, it included.
            failures: gets what could not be read -> why.
        """
        nvml, handle = self._nvml, self._handle
        memory, others = self._processes(pid, gpu_workers, failures)
        return GpuSample(
            gpu_percent=self._try(
                "utilization", lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu, failures
            ),
            power=self._try("power", lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1e3, failures),
            sm_clock=self._clock(nvml.NVML_CLOCK_SM, failures),
            memory_clock=self._clock(nvml.NVML_CLOCK_MEM, failures),
            temperature=self._try(
                "temperature",
                lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
                failures,
            ),
            throttle=self._try("throttling", self._throttle, failures),
            memory_bytes=memory,
            others=others,
        )

    def _clock(self, which: int, failures: dict[str, str]) -> float | None:
        return self._try("clocks", lambda: self._nvml.nvmlDeviceGetClockInfo(self._handle, which), failures)

    def _throttle(self) -> int:
        try:
            return self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
        except self._nvml.NVMLError:
            return self._nvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle)

    def _processes(
        self, pid: int, gpu_workers: Collection[int], failures: dict[str, str]
    ) -> tuple[int | None, int | None]:
        """Bytes of the worker, and how many processes are not ours.

        In a container the driver may list processes by the host's numbers, or ours with 0 bytes: that says
        neither what is the worker's nor whose the others are.
        """
        running = self._try(
            "processes", lambda: self._nvml.nvmlDeviceGetComputeRunningProcesses(self._handle), failures
        )
        by_pid = {process.pid: process.usedGpuMemory for process in running or ()}
        if pid not in by_pid:
            return None, None
        return by_pid[pid] or None, len(by_pid.keys() - set(gpu_workers))

    def _try(self, what: str, read: Callable[[], Value], failures: dict[str, str]) -> Value | None:
        try:
            return read()
        except self._nvml.NVMLError as error:
            failures[what] = str(error)
            return None
