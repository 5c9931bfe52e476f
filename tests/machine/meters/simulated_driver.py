"""Driver for the real pynvml: it answers the C functions from `simulated_driver.toml`, through ctypes structures."""

from __future__ import annotations

import ctypes
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

CARDS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
PROCESSES = "nvmlDeviceGetComputeRunningProcesses_v3"
ENERGY = "nvmlDeviceGetTotalEnergyConsumption"
JOULES_PER_READING = 100


class Driver:
    """Library as ctypes loads it, with an attribute for each C function.

    `refuse` maps functions ("*": any of a device) to the name of an error; `before` is called before each reading
    of a device; `sessions` counts initializations without a shutdown.
    """

    def __init__(self, *cards: str, **refuse: str) -> None:
        self.cards = [dict(CARDS[card]) for card in cards or ("h100",)]
        self.refuse = refuse
        self.before: Callable[[], object] = lambda: None
        self.sessions = 0

    def __getattr__(self, name: str) -> Callable[..., int]:
        own = {
            "nvmlInitWithFlags": lambda *_: self._count(name, 1),
            "nvmlShutdown": lambda *_: self._count(name, -1),
            "nvmlDeviceGetCount_v2": lambda count: _set(count, len(self.cards)),
            "nvmlDeviceGetHandleByIndex_v2": self._handle,
        }
        if name not in own and not any(name in card for card in self.cards):
            raise AttributeError(name)  # as ctypes does if the library is too old
        return own.get(name) or (lambda handle, *rest: self._answer(name, handle, rest))

    def _count(self, name: str, change: int) -> int:
        if name in self.refuse:
            return _error(self.refuse[name])
        self.sessions += change
        return 0

    def _handle(self, index: Any, handle: Any) -> int:
        if index.value >= len(self.cards):
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        ctypes.c_void_p.from_address(ctypes.addressof(handle._obj)).value = index.value + 1
        return 0

    def _answer(self, name: str, handle: Any, rest: tuple[Any, ...]) -> int:
        if name not in ("nvmlDeviceGetName", "nvmlDeviceGetUUID"):
            self.before()
        card = self.cards[ctypes.cast(handle, ctypes.c_void_p).value - 1]  # type: ignore[operator]
        refused = self.refuse.get(name) or self.refuse.get("*")
        answer = refused or card.get(name, "FUNCTION_NOT_FOUND")
        if name == ENERGY and isinstance(answer, int):
            card[name] += 1000 * JOULES_PER_READING
        if isinstance(answer, str) and hasattr(pynvml, f"NVML_ERROR_{answer}"):
            return _error(answer)
        if isinstance(answer, list):
            return _processes(answer, *rest)
        if isinstance(answer, dict) and len(rest) == 2:  # by the first argument: a kind of clock
            answer, rest = answer[str(rest[0].value)], rest[1:]
        return _set(rest[-1] if hasattr(rest[-1], "_obj") else rest[0], answer)


def install(monkeypatch: pytest.MonkeyPatch, driver: Driver) -> Driver:
    """Replace pynvml's driver."""
    monkeypatch.setattr(pynvml, "nvmlLib", driver)
    monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", lambda: None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return driver


def process(pid: int, used_bytes: int) -> dict[str, int]:
    return {"pid": pid, "usedGpuMemory": used_bytes}


def _error(name: str) -> int:
    return int(getattr(pynvml, f"NVML_ERROR_{name}"))


def _set(target: Any, answer: Any) -> int:
    """Write as a C function does: through a pointer to a number or a structure, or to a buffer."""
    if isinstance(answer, str):
        target.value = answer.encode()
    elif isinstance(answer, dict):
        for name, value in answer.items():
            setattr(target._obj, name, value)
    else:
        target._obj.value = answer
    return 0


def _processes(running: list[dict[str, int]], count: Any, records: Any) -> int:
    """Answer as the manual says: the first call returns the number of processes."""
    if records is None:
        count._obj.value = len(running)
        return _error("INSUFFICIENT_SIZE") if running else 0
    for record, process in zip(records, running, strict=False):
        record.pid = process["pid"]
        record.usedGpuMemory = ctypes.c_ulonglong(process["usedGpuMemory"]).value
    count._obj.value = len(running)
    return 0
