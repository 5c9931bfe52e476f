"""On what a study ran: the machine and this program's own version."""

from __future__ import annotations

import os
import platform
import socket
import subprocess
from pathlib import Path

import psutil

from polybench.core.document.circumstances import Host, Tool
from polybench.core.version import __version__
from polybench.machine import cgroups, cores

_GOVERNOR = Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")


def this_host() -> Host:
    """This machine, as far as it can be read without root."""
    return Host(
        hostname=socket.gethostname(),
        os=f"{platform.system()} {platform.release()}",
        cpu=cpu_name(),
        cores=psutil.cpu_count(logical=False) or 1,
        threads=os.cpu_count() or 1,
        memory_bytes=psutil.virtual_memory().total,
        gpus=gpus(),
        governor=_GOVERNOR.read_text().strip() if _GOVERNOR.exists() else None,
        load=os.getloadavg()[0],
        python=platform.python_version(),
    )


def boot_id() -> str:
    """Of this kernel since it started: another one on every machine, the same in all containers of one."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


def cpu_name() -> str:
    """The processor's own name for itself."""
    return _of_cpuinfo("model name") or platform.machine()


def cpu_features() -> str:
    """The instructions that programs may choose their code by; "" where the kernel does not tell."""
    return _of_cpuinfo("flags") or _of_cpuinfo("Features")


def _of_cpuinfo(what: str) -> str:
    """Of the first processor."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith(what):
            return line.partition(":")[2].strip()
    return ""


def gpus() -> list[str]:
    """Names of the NVIDIA GPUs that the driver shows; empty without a driver."""
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
    """The least of physical cores, this process's affinity and its control groups' quota; at least 1.

    Where two CPUs that it may use are hyper-threads of one core, that core counts once.
    """
    physical = len(cores.physical_cores()) or psutil.cpu_count(logical=False) or 1
    limits = [physical, len(cores.usable_cpus())]
    if (quota := cgroups.cpu_quota()) is not None:
        limits.append(int(quota))
    return max(1, min(limits))


def available_memory() -> int:
    """Bytes that new processes can take without swapping, and within this process's control groups."""
    available = int(psutil.virtual_memory().available)
    left = cgroups.memory_left()
    return available if left is None else min(available, left)


def tool() -> Tool:
    """polybench's version, and its commit when it runs from a checkout."""
    return Tool(__version__, _commit())


def _commit() -> str | None:
    folder = Path(__file__).parents[2]
    if not (folder / ".git").exists():
        return None
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=5, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None
