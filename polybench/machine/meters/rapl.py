"""Energy of processor packages: RAPL ("running average power limit") counters, as Linux shows them.

https://docs.kernel.org/power/powercap/powercap.html; AMD's processors are shown there as well. A package is
everything on it: other programs, caches, what it takes when idle; not the memory modules.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

POWERCAP = Path("/sys/class/powercap")

ALLOW = f"sudo chmod a+r {POWERCAP}/intel-rapl:*/energy_uj"
"""Until the next start of the machine; the counter is root's alone since CVE-2020-8694."""

_PACKAGE = re.compile(r"intel-rapl:\d+")
"""Of the control type itself: `intel-rapl:0:0` is a part of package 0, `intel-rapl-mmio:0` shows it again."""


class Package(NamedTuple):
    """One counter; it starts again from 0 beyond `range_uj` microjoules, at most once in some minutes."""

    name: str
    counter: Path
    range_uj: int

    def read(self) -> int:
        """Microjoules so far; raises OSError."""
        return int(self.counter.read_text())

    def joules(self, start: int, end: int) -> float:
        """Energy between two readings, of which the second may be after a new start."""
        return (end - start if end >= start else end - start + self.range_uj) / 1e6


class Rapl:
    """The packages that can be read; `problem` says why there are none."""

    def __init__(self, powercap: Path = POWERCAP) -> None:
        self.packages: list[Package] = []
        self.problem: str | None = None
        self.forbidden = False
        try:
            self.packages = list(_packages(powercap))
            for package in self.packages:
                package.read()
        except PermissionError:
            self.packages, self.forbidden = [], True
            self.problem = "RAPL: no permission to read the processor's energy counter"
        except (OSError, ValueError) as error:
            self.packages, self.problem = [], f"RAPL: {error}"
        if not self.packages and self.problem is None:
            self.problem = f"RAPL: no processor package in {powercap} (a virtual machine, or no such counter)"

    def read(self) -> list[int]:
        """Microjoules of each package; raises OSError."""
        return [package.read() for package in self.packages]

    def joules(self, start: list[int], end: list[int]) -> dict[str, float]:
        """Energy of each package between two calls of `read`."""
        return {
            package.name: package.joules(*readings)
            for package, *readings in zip(self.packages, start, end, strict=True)
        }


def _packages(powercap: Path) -> list[Package]:
    folders = sorted(powercap.iterdir()) if powercap.exists() else []
    found = []
    for folder in folders:
        # `psys`, the whole board, stands beside the packages and contains them.
        if _PACKAGE.fullmatch(folder.name) and (name := _text(folder / "name")).startswith("package"):
            counter, most = folder / "energy_uj", int(_text(folder / "max_energy_range_uj"))
            found.append(Package(name, counter, most))
    return found


def _text(file: Path) -> str:
    return file.read_text().strip()
