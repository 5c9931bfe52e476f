"""A libnvidia-ml.so.1 of simulated cards, compiled from `nvml.c`: nvidia-ml-py loads and calls it as a driver's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pynvml
import pytest

from tests.machine.meters.simulated_driver import CARDS, ENERGY, PROCESSES

_SOURCE = Path(__file__).with_name("nvml.c")
_FUNCTIONS = {
    "utilization": "nvmlDeviceGetUtilizationRates",
    "power": "nvmlDeviceGetPowerUsage",
    "energy": ENERGY,
    "clocks": "nvmlDeviceGetClockInfo",
    "temperature": "nvmlDeviceGetTemperature",
    "throttling": "nvmlDeviceGetCurrentClocksEventReasons",
    "memory": "nvmlDeviceGetMemoryInfo",
    "processes": PROCESSES,
}


def build(folder: Path, *cards: str, old_driver: bool = False) -> dict[str, str]:
    """Compile the library into the folder; return the environment in which programs load it.

    `cards` are rows of `simulated_driver.toml`. Skips the test if there is no C compiler.
    """
    compiler = shutil.which("cc") or pytest.skip("no C compiler (cc) is installed")
    folder.mkdir()
    rows = ",\n".join(_initializer(CARDS[card]) for card in cards)
    (folder / "cards.h").write_text(f"static const Card cards[] = {{\n{rows}\n}};\n")
    command = [compiler, "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", *(["-DOLD_DRIVER"] if old_driver else [])]
    subprocess.run([*command, f"-I{folder}", "-o", folder / "libnvidia-ml.so.1", _SOURCE], check=True)
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH", "")]))
    return {"LD_LIBRARY_PATH": path, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def _initializer(card: dict[str, Any]) -> str:
    """Return the C initializer of a card."""
    reasons = "nvmlDeviceGetCurrentClocksThrottleReasons"  # its old name, of the card with an old driver
    row = {"name": card["nvmlDeviceGetName"], "uuid": card["nvmlDeviceGetUUID"]}
    for field, function in _FUNCTIONS.items():
        answer = card[reasons if field == "throttling" and function not in card else function]
        match answer:
            case str():
                row[field] = {"refused": getattr(pynvml, f"NVML_ERROR_{answer}")}
            case list():
                row[field] = {"count": len(answer), "value": answer}
            case {"1": sm, "2": memory}:
                row[field] = {"sm": sm, "memory": memory}
            case _:
                row[field] = {"value": answer}
    return _in_c(row)


def _in_c(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'.{name} = {_in_c(one)}' for name, one in value.items())}}}"
    if isinstance(value, list):
        return f"{{{', '.join(map(_in_c, value))}}}"
    return f'"{value}"' if isinstance(value, str) else f"{value}u"
