"""Fake driver with recorded readings: a V100 (SXM2, 16 GB) and an H100 (SXM5, 80 GB) during training.

The numbers have the shape and size of such cards' readings but were not measured here. mypy checks the fake
against the protocol, and a test checks the protocol against the real pynvml.
"""

# ruff: noqa: N802, N815 - the names are NVML's

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from polybench.machine.meters.nvml import Nvml


class Refused(Exception):
    """NVMLError with the texts of nvmlErrorString."""


LIBRARY_NOT_FOUND = Refused("NVML Shared Library Not Found")
NOT_SUPPORTED = Refused("Not Supported")
NO_PERMISSION = Refused("Insufficient Permissions")
GPU_IS_LOST = Refused("GPU is lost")
FUNCTION_NOT_FOUND = Refused("Function Not Found")


@dataclass
class Rates:
    gpu: int
    memory: int


@dataclass
class DeviceMemory:
    total: int
    free: int
    used: int


@dataclass
class RunningProcess:
    pid: int
    usedGpuMemory: int | None


@dataclass
class Card:
    """Readings of one GPU: mW, mJ, MHz, degrees Celsius, bytes."""

    name: str
    uuid: str
    busy: int
    milliwatts: int
    sm_clock: int
    memory_clock: int
    temperature: int
    total: int
    used: int
    reasons: int = 0
    millijoules: int = 1_234_567_890
    millijoules_a_reading: int = 100_000
    running: list[RunningProcess] = field(default_factory=list)


def v100() -> Card:
    return Card(
        "Tesla V100-SXM2-16GB", "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
        busy=87, milliwatts=213_486, sm_clock=1530, memory_clock=877, temperature=54,
        total=16_945_512_448, used=3_145_728,
    )  # fmt: skip


def h100() -> Card:
    return Card(
        "NVIDIA H100 80GB HBM3", "GPU-1c9d2b4e-52a6-9c7e-6a5f-0b7c2f1de880",
        busy=96, milliwatts=512_304, sm_clock=1980, memory_clock=2619, temperature=61,
        total=85_520_809_984, used=4_194_304,
    )  # fmt: skip


class FakeNvml:
    """`refuse` maps a reading ("*": any) to an error; `before` is called before each reading."""

    NVMLError: type[Exception] = Refused
    NVML_CLOCK_SM = 1
    NVML_CLOCK_MEM = 2
    NVML_TEMPERATURE_GPU = 0

    def __init__(self, *cards: Card, refuse: dict[str, Refused] | None = None) -> None:
        self.cards = cards or (v100(),)
        self.refuse = refuse or {}
        self.before: Callable[[], None] = lambda: None
        self.sessions = 0

    def _card(self, function: str, handle: int) -> Card:
        self.before()
        self._check(function)
        return self.cards[handle]

    def _check(self, function: str) -> None:
        for name in (function, "*"):
            if name in self.refuse:
                raise self.refuse[name]

    def nvmlInit(self) -> None:
        self._check("Init")
        self.sessions += 1

    def nvmlShutdown(self) -> None:
        self.sessions -= 1

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:
        return self.cards[handle].name

    def nvmlDeviceGetUUID(self, handle: int) -> str:
        return self._card("UUID", handle).uuid

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Rates:
        return Rates(self._card("UtilizationRates", handle).busy, 31)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        return self._card("PowerUsage", handle).milliwatts

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        card = self._card("TotalEnergyConsumption", handle)
        card.millijoules += card.millijoules_a_reading
        return card.millijoules

    def nvmlDeviceGetClockInfo(self, handle: int, type: int) -> int:
        card = self._card("ClockInfo", handle)
        return {self.NVML_CLOCK_SM: card.sm_clock, self.NVML_CLOCK_MEM: card.memory_clock}[type]

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        assert sensor == self.NVML_TEMPERATURE_GPU
        return self._card("Temperature", handle).temperature

    def nvmlDeviceGetCurrentClocksEventReasons(self, handle: int) -> int:
        return self._card("ClocksEventReasons", handle).reasons

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return self._card("ClocksThrottleReasons", handle).reasons

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> DeviceMemory:
        card = self._card("MemoryInfo", handle)
        return DeviceMemory(card.total, card.total - card.used, card.used)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: int) -> Sequence[RunningProcess]:
        return list(self._card("ComputeRunningProcesses", handle).running)


def _as_nvml(fake: FakeNvml) -> Nvml:
    return fake  # checked by mypy
