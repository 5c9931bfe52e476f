"""Description of the machine that a study runs on, and the version of polybench."""

from __future__ import annotations

import functools
import os
import platform
import socket
from pathlib import Path

import psutil

from polybench.data import supervisor
from polybench.errors import __version__
from polybench.machine import cgroups, cores
from polybench.schema.metadata import Host, ToolVersion

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def this_host() -> Host:
    """Return the description of this machine, as far as it is readable without root."""
    return Host(
        hostname=socket.gethostname(),
        os=f"{platform.system()} {platform.release()}",
        cpu=cpu_name(),
        cores=psutil.cpu_count(logical=False) or 1,
        threads=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpu_names(),
        cpu_governor=_GOVERNOR.read_text().strip() if _GOVERNOR.exists() else None,
        load_average=os.getloadavg()[0],
        python=platform.python_version(),
    )


def boot_id() -> str:
    """Return the kernel's boot ID: unique to a machine, but equal in all of its containers."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def cpu_name() -> str:
    """Return the processor's model name."""
    return _cpuinfo_field("model name") or platform.machine()


def cpu_features() -> str:
    """Return the instruction set flags of the processor; "" if the kernel does not report them."""
    return _cpuinfo_field("flags") or _cpuinfo_field("Features")


def _cpuinfo_field(name: str) -> str:
    """Return this field of the first processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return ""


def gpu_names() -> list[str]:
    """Return the names of the NVIDIA GPUs that the driver reports; empty without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        count = pynvml.nvmlDeviceGetCount()
        return [str(pynvml.nvmlDeviceGetName(pynvml.nvmlDeviceGetHandleByIndex(n))) for n in range(count)]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


def usable_threads() -> int:
    """Return the minimum of physical cores, this process's affinity and its control groups' quota; at least
    1.

    Two usable CPUs that are hyper-threads of one core count as one.
    """
    physical = len(cores.physical_cores()) or psutil.cpu_count(logical=False) or 1
    limits = [physical, len(cores.usable_cpus())]
    if (quota := cgroups.cpu_quota()) is not None:
        limits.append(int(quota))
    return max(1, min(limits))


def available_memory() -> int:
    """Return the bytes that new processes can use without swapping, within this process's control groups."""
    available = int(psutil.virtual_memory().available)
    limit = cgroups.available_memory()
    return available if limit is None else min(available, limit)


@functools.cache
def tool_version() -> ToolVersion:
    """Return polybench's version, and its commit if it runs from a checkout: those of the code in this process."""
    folder = Path(__file__).parents[2]
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    commit = None
    if (folder / ".git").exists():
        commit = supervisor.run(command, 5).stdout.strip() or None
    return ToolVersion(__version__, commit)
