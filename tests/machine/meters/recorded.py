"""Driver for the real pynvml: it answers the C functions from `recorded.toml`, through ctypes structures."""

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
    """Library as ctypes loads it, with an attribute for each C function, for one GPU.

    If `lost` is set, every function of a device answers that the GPU is lost.
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
            raise AttributeError(name)  # as ctypes does if the library is too old
        return lambda handle, *rest: self._answer(self.answers[name], rest)

    def _answer(self, answer: Any, rest: tuple[Any, ...]) -> int:
        if self.lost:
            return int(pynvml.NVML_ERROR_GPU_IS_LOST)
        if isinstance(answer, str) and hasattr(pynvml, f"NVML_ERROR_{answer}"):
            return int(getattr(pynvml, f"NVML_ERROR_{answer}"))
        if isinstance(answer, list):
            return _processes(answer, *rest)
        if isinstance(answer, dict) and len(rest) == 2:  # by the first argument: a kind of clock
            answer, rest = answer[str(rest[0].value)], rest[1:]
        return _set(rest[-1] if hasattr(rest[-1], "_obj") else rest[0], answer)


def install(monkeypatch: pytest.MonkeyPatch, card: str) -> Driver:
    """Replace pynvml's driver by this card's."""
    driver = Driver(RECORDED[card])
    monkeypatch.setattr(pynvml, "nvmlLib", driver)
    monkeypatch.setattr(pynvml, "_LoadNvmlLibrary", lambda: None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return driver


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
        return int(_INSUFFICIENT_SIZE) if running else 0
    for record, process in zip(records, running, strict=False):
        record.pid = process["pid"]
        record.usedGpuMemory = ctypes.c_ulonglong(process["usedGpuMemory"]).value
    count._obj.value = len(running)
    return 0
