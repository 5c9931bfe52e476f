"""The caches of the processor.

https://docs.kernel.org/ABI/testing/sysfs-devices-system-cpu (cache/index*)
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from polybench.machine.cores import CPUS, usable_cpus

_UNITS = {"K": 1 << 10, "M": 1 << 20}


def last_level_bytes(threads: int, usable: Collection[int] | None = None, folder: Path = CPUS) -> int | None:
    """Bytes of all caches of the last level that so many threads can reach; None where nothing tells.

    Args:
        threads: on cores of their own, each of which may have such a cache to itself.
        usable: logical CPUs, by default those of this process.
        folder: where the kernel describes them.
    """
    found: dict[str, int] = {}
    for cpu in usable_cpus() if usable is None else usable:
        caches = list((folder / f"cpu{cpu}" / "cache").glob("index*"))
        try:
            last = max(caches, key=lambda cache: int((cache / "level").read_text()))
            shared = (last / "shared_cpu_list").read_text()
            size = (last / "size").read_text().strip()
            found[shared] = int(size[:-1]) * _UNITS[size[-1]]
        except (OSError, ValueError, KeyError):
            return None
    return sum(sorted(found.values(), reverse=True)[:threads])
