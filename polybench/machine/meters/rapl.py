"""Energy of processor packages: RAPL ("running average power limit") counters of the Linux kernel.

https://docs.kernel.org/power/powercap/powercap.html covers AMD's processors as well. A package includes the
energy of other programs, of caches and of idle time, but not of the memory modules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

POWERCAP = Path("/sys/class/powercap")

ALLOW_COMMAND = f"sudo chmod a+r {POWERCAP}/intel-rapl:*/energy_uj"
"""Valid until the next boot; only root may read the counter since CVE-2020-8694."""

_PACKAGE = re.compile(r"intel-rapl:\d+")
"""Matches packages only: `intel-rapl:0:0` is a part of package 0, `intel-rapl-mmio:0` repeats package 0."""


class Package(NamedTuple):
    """A counter; it wraps around to 0 after `range_uj` microjoules, at most once in some minutes."""

    name: str
    counter: Path
    range_uj: int

    def read(self) -> int:
        """Return the microjoules so far; raises OSError."""
        return int(self.counter.read_text())

    def joules(self, start: int, end: int) -> float:
        """Return the energy between two readings, allowing for one wrap-around."""
        return (end - start if end >= start else end - start + self.range_uj) / 1e6


class Rapl:
    """The readable packages; `problem` explains an empty list."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        self.packages: list[Package] = []
        self.problem: str | None = None
        self.is_forbidden = False
        try:
            self.packages = list(_packages(powercap))
            for package in self.packages:
                package.read()
        except PermissionError:
            self.packages, self.is_forbidden = [], True
            self.problem = "RAPL: no permission to read the processor's energy counter"
        except (OSError, ValueError) as error:
            self.packages, self.problem = [], f"RAPL: {error}"
        if not self.packages and self.problem is None:
            self.problem = f"RAPL: no processor package in {powercap} (a virtual machine, or no such counter)"

    def read(self) -> list[int]:
        """Return the microjoules of each package; raises OSError."""
        return [package.read() for package in self.packages]

    def joules(self, start: list[int], end: list[int]) -> dict[str, float]:
        """Return the energy of each package between two calls of `read`."""
        return {
            package.name: package.joules(*readings)
            for package, *readings in zip(self.packages, start, end, strict=True)
        }


def _packages(powercap: Path) -> Iterator[Package]:
    for folder in sorted(powercap.iterdir()) if powercap.exists() else []:
        # `psys`, the whole board, is listed beside the packages and contains them.
        if _PACKAGE.fullmatch(folder.name) and (name := (folder / "name").read_text().strip()).startswith("package"):
            yield Package(name, folder / "energy_uj", int((folder / "max_energy_range_uj").read_text()))
