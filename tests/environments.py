"""Virtual environments for tests, created quickly because nothing is installed into them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy

ENGINE_SOURCE = """
from polybench.engines.job import EngineInfo
from polybench.engines.fake.engine import FakeEngine

VERSION = {version!r}

class Engine(FakeEngine):
    def probe(self):
        import sys
        return EngineInfo({{"demo_engine": VERSION}}, {{"executable": sys.executable, "prefix": sys.prefix}}, ("cpu",))
"""


def make_environment(folder: Path, *, with_numpy: bool = True) -> Path:
    """Create an environment of this Python with or without NumPy, and without the packages of polybench."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    if with_numpy:
        package = Path(numpy.__file__).parent
        for source in (package, package.parent / "numpy.libs"):
            (site_packages(folder) / source.name).symlink_to(source)
    return folder


def site_packages(folder: Path) -> Path:
    """Return the folder of an environment's packages."""
    (packages,) = folder.glob("lib/python3*/site-packages")
    return packages


def write_engine(folder: Path, version: str) -> None:
    """Write a module `demo_engine` of this version, with an engine that reports where it runs."""
    (folder / "demo_engine.py").write_text(ENGINE_SOURCE.format(version=version))
