"""A driver for the real pynvml: it answers the C functions from `recorded.toml`, through ctypes' records."""

from __future__ import annotations

import ctypes
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

RECORDED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))

_INSUFFICIENT_SIZE = pynvml.NVML_ERROR_INSUFFICIENT_SIZE


class Driver:
    """What ctypes would have loaded: an attribute for each C function. It has one GPU.

    `lost` makes every function of a device answer that the GPU is lost, from now on.
    """

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers
        self.lost = False

    def __getattr__(self, name: str) -> Callable[..., int]:
        if name in ("nvmlInitWithFlags", "nvmlShutdown"):
            return lambda *_: 0
        if name == "nvmlDeviceGetCount_v2":
            return lambda count: _set(count, 1)
        if name == "nvmlDeviceGetHandleByIndex_v2":
            return lambda index, handle: 0 if index.value == 0 else pynvml.NVML_ERROR_INVALID_ARGUMENT
        if name not in self.answers:
            raise AttributeError(name)  # as ctypes says of a library that is too old
        return lambda handle, *rest: self._answer(self.answers[name], rest)

    def _answer(self, answer: Any, rest: tuple[Any, ...]) -> int:
        if self.lost:
            return int(pynvml.NVML_ERROR_GPU_IS_LOST)
        if isinstance(answer, str) and hasattr(pynvml, f"NVML_ERROR_{answer}"):
            return int(getattr(pynvml, f"NVML_ERROR_{answer}"))
        if isinstance(answer, list):
            return _processes(answer, *rest)
        if isinstance(answer, dict) and len(rest) == 2:  # by what is asked for: a clock of a kind
            answer, rest = answer[str(rest[0].value)], rest[1:]
        return _set(rest[-1] if hasattr(rest[-1], "_obj") else rest[0], answer)


def install(monkeypatch: pytest.MonkeyPatch, card: str) -> Driver:
    """Give pynvml this card's driver."""
    driver = Driver(RECORDED[card])
    monkeypatch.setattr(pynvml, "nvmlLib", driver)
    monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", lambda: None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return driver


def _set(where: Any, answer: Any) -> int:
    """Write what a C function would: through a pointer into a number or a record, or into a buffer."""
    if isinstance(answer, str):
        where.value = answer.encode()
    elif isinstance(answer, dict):
        for name, value in answer.items():
            setattr(where._obj, name, value)
    else:
        where._obj.value = answer
    return 0


def _processes(running: list[dict[str, int]], count: Any, records: Any) -> int:
    """As the manual has it: the first call asks how many there are."""
    if records is None:
        count._obj.value = len(running)
        return int(_INSUFFICIENT_SIZE) if running else 0
    for record, process in zip(records, running, strict=False):
        record.pid = process["pid"]
        record.usedGpuMemory = ctypes.c_ulonglong(process["usedGpuMemory"]).value
    count._obj.value = len(running)
    return 0
