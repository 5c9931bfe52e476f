"""Which meters work here, for `polybench doctor`."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path

import msgspec

from polybench.machine.meters import nvml
from polybench.machine.meters.rapl import ALLOW, POWERCAP, Rapl


class Finding(msgspec.Struct, frozen=True):
    """`what` was read; or it was not, `reason` says why, `remedy` what to do (null: nothing)."""

    works: bool
    what: str
    reason: str | None = None
    remedy: str | None = None


def rapl(powercap: Path = POWERCAP) -> Finding:
    """The processor's energy counter."""
    found = Rapl(powercap)
    if found.problem is None:
        names = ", ".join(package.name for package in found.packages)
        return Finding(True, f"energy of the processor ({names})")
    return Finding(False, "energy of the processor", found.problem, ALLOW if found.forbidden else None)


def gpus() -> list[Finding]:
    """NVML, and each GPU's energy counter."""
    library = nvml.load()
    what = "utilization, power, clocks and memory of GPUs"
    try:
        library.nvmlInit()
    except library.NVMLError as error:
        return [Finding(False, what, f"NVML: {error}", "the NVIDIA driver, where there is a GPU")]
    try:
        handles = [library.nvmlDeviceGetHandleByIndex(n) for n in range(library.nvmlDeviceGetCount())]
        return [Finding(True, what), *(_energy_counter(library, handle) for handle in handles)]
    except library.NVMLError as error:
        return [Finding(False, what, f"NVML: {error}", "look at what nvidia-smi says")]
    finally:
        with contextlib.suppress(library.NVMLError):
            library.nvmlShutdown()


def native_allocations() -> Finding:
    """memray, which counts what steps ask of the C library; only a worker imports it."""
    what = "native allocations"
    if importlib.util.find_spec("memray") is None:
        return Finding(False, what, "memray is not installed", "pip install 'polybench[memray]'")
    return Finding(True, what)


def _energy_counter(library: nvml.Nvml, handle: nvml.Handle) -> Finding:
    what = f"energy of {library.nvmlDeviceGetName(handle)}"
    try:
        library.nvmlDeviceGetTotalEnergyConsumption(handle)
    except library.NVMLError as error:
        return Finding(False, what, f"NVML: {error}; estimated from its power, read twice a second")
    return Finding(True, what)
