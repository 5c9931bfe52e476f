"""Virtual environments for tests: made in a moment, since nothing is installed into them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy

PLANTED = """
from polybench.core.job import Probe
from polybench.engines.fake.engine import FakeEngine

VERSION = {version!r}

class Engine(FakeEngine):
    def probe(self):
        import sys
        return Probe({{"planted": VERSION}}, {{"executable": sys.executable, "prefix": sys.prefix}}, ("cpu",))
"""


def environment(folder: Path, *, numpy_too: bool = True) -> Path:
    """An environment of this Python that has NumPy, or nothing; what polybench needs is not in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    if numpy_too:
        there = Path(numpy.__file__).parent
        for part in (there, there.parent / "numpy.libs"):
            (site_packages(folder) / part.name).symlink_to(part)
    return folder


def site_packages(folder: Path) -> Path:
    """Where its modules are."""
    (found,) = folder.glob("lib/python3*/site-packages")
    return found


def plant(folder: Path, version: str) -> None:
    """A module `planted` of this version, with an engine that says where it runs."""
    (folder / "planted.py").write_text(PLANTED.format(version=version))
