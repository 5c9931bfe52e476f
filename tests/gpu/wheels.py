"""Download polybench's own light packages for a machine without an index: `python -m tests.gpu.wheels [FOLDER]`.

NumPy and the frameworks must be on that machine. The folder has less than 64 MiB.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from tests.gpu.__main__ import WHEELS
from tests.gpu.machine import BESIDE_FRAMEWORKS, requirements

LIMIT = 64 << 20
THERE = ("numpy-",)
"""Wheels that are downloaded with the others, but expected on that machine."""

_PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_27_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
)


def download(folder: Path, python: str) -> list[Path]:
    """Download the wheels for that Python on x86-64; remove everything else from the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.whl"):
        old.unlink()
    target = [
        "--python-version",
        python,
        "--implementation",
        "cp",
        "--only-binary=:all:",
        "--dest",
        str(folder),
    ]
    target += [option for platform in _PLATFORMS for option in ("--platform", platform)]
    beside = [name for names in BESIDE_FRAMEWORKS.values() for name in names]
    for what in (requirements(), ["--no-deps", *beside]):
        subprocess.run([sys.executable, "-m", "pip", "--quiet", "download", *target, *what], check=True)
    for there in THERE:
        for wheel in folder.glob(f"{there}*.whl"):
            wheel.unlink()
    return sorted(folder.glob("*.whl"))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.wheels", description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", default=WHEELS)
    parser.add_argument("--python", default=".".join(map(str, sys.version_info[:2])), help="of that machine")
    asked = parser.parse_args()
    sizes = {wheel.name: wheel.stat().st_size for wheel in download(asked.folder, asked.python)}
    for name, size in sizes.items():
        print(f"{size / 2**20:7.2f} MiB  {name}")
    total = sum(sizes.values())
    print(f"{total / 2**20:7.2f} MiB  in {asked.folder}")
    return 0 if total < LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
