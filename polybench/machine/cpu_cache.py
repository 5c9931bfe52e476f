"""Sizes of the processor's caches.

https://docs.kernel.org/ABI/testing/sysfs-devices-system-cpu (cache/index*)
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from polybench.machine.cores import CPU_FOLDER, usable_cpus

_UNITS = {"K": 1 << 10, "M": 1 << 20}


def last_level_cache_bytes(
    threads: int, cpus: Collection[int] | None = None, cpu_folder: Path = CPU_FOLDER
) -> int | None:
    """Return the total size of the last-level caches that `threads` threads can use; None if it is unknown.

    Args:
        threads: number of threads on separate cores, each of which may have its own cache.
        cpus: usable logical CPUs, by default those of this process.
        cpu_folder: the kernel's folder that describes the CPUs.
    """
    bytes_by_sharing_cpus: dict[str, int] = {}
    for cpu in usable_cpus() if cpus is None else cpus:
        caches = list((cpu_folder / f"cpu{cpu}" / "cache").glob("index*"))
        try:
            last_level = max(caches, key=lambda cache: int((cache / "level").read_text()))
            sharing_cpus = (last_level / "shared_cpu_list").read_text()
            size = (last_level / "size").read_text().strip()
            bytes_by_sharing_cpus[sharing_cpus] = int(size[:-1]) * _UNITS[size[-1]]
        except (OSError, ValueError, KeyError):
            return None
    return sum(sorted(bytes_by_sharing_cpus.values(), reverse=True)[:threads])
