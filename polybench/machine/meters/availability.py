"""Availability of the meters on this machine, for `polybench doctor`."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path

import msgspec

from polybench.errors import install_command
from polybench.machine.meters.rapl import ALLOW_COMMAND, POWERCAP, Rapl


class Availability(msgspec.Struct, frozen=True):
    """Availability of one meter; if it is unavailable, the reason and, if there is one, a fix."""

    available: bool
    meter: str
    reason: str | None = None
    hint: str | None = None


def rapl(powercap: Path = POWERCAP) -> Availability:
    """Check the processor's energy counter."""
    counter = Rapl(powercap)
    if counter.problem is None:
        names = ", ".join(package.name for package in counter.packages)
        return Availability(True, f"energy of the processor ({names})")
    return Availability(
        False, "energy of the processor", counter.problem, ALLOW_COMMAND if counter.is_forbidden else None
    )


def gpus() -> list[Availability]:
    """Check NVML and each GPU's energy counter."""
    import pynvml

    meter = "utilization, power, clocks and memory of GPUs"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return [Availability(False, meter, f"NVML: {error}", "install the NVIDIA driver if there is a GPU")]
    found = [Availability(True, meter)]
    try:
        for handle in [pynvml.nvmlDeviceGetHandleByIndex(n) for n in range(pynvml.nvmlDeviceGetCount())]:
            counter = f"energy of {pynvml.nvmlDeviceGetName(handle)}"
            try:
                pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
                found.append(Availability(True, counter))
            except pynvml.NVMLError as error:
                reason = f"NVML: {error}; estimated from its power, read twice a second"
                found.append(Availability(False, counter, reason))
        return found
    except pynvml.NVMLError as error:
        return [Availability(False, meter, f"NVML: {error}", "run nvidia-smi for details")]
    finally:
        with contextlib.suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def native_allocations() -> Availability:
    """Check memray, which counts a step's allocations by the C library; only workers import it."""
    meter = "native allocations"
    if importlib.util.find_spec("memray") is None:
        return Availability(False, meter, "memray is not installed", install_command("memray"))
    return Availability(True, meter)
