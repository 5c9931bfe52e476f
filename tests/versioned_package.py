"""A small Python package with a Git history: an engine, which one of its commits makes slower."""

from __future__ import annotations

import subprocess
from pathlib import Path

ENGINE = """
from polybench.engines.fake.engine import FakeEngine

FACTOR = 1.0

class Small(FakeEngine):
    def _simulate(self, seconds, n):
        return FACTOR * super()._simulate(seconds, n)
"""

TORCH_ENGINE = """
from time import perf_counter

from polybench.engines.torch.engine import TorchEngine

FACTOR = 1.0

class Small(TorchEngine):
    def run_steps(self, first, n):
        start = perf_counter()
        seconds = super().run_steps(first, n)
        while perf_counter() - start < FACTOR * seconds:
            pass
        return perf_counter() - start
"""
"""The same for real: the steps of PyTorch, and a wait."""

ROW = """
from polybench.engines import EngineSpec

ENGINE = EngineSpec("small_engine:Small", "a small engine", computes=False, startup_seconds=1.0)
"""

ENTRY_POINTS = "[polybench.engines]\nsmall = small_engine_row:ENGINE\n"

PYPROJECT = """
[project]
name = "small-engine"
version = "1.0"

[project.entry-points."polybench.engines"]
small = "small_engine_row:ENGINE"

[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""

BACKEND = f'''
"""A build backend that needs no download."""

import pathlib
import zipfile

def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "small_engine-1.0-py3-none-any.whl"
    info = "small_engine-1.0.dist-info"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        wheel.write("small_engine.py")
        wheel.write("small_engine_row.py")
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: small-engine\\nVersion: 1.0\\n")
        wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "/entry_points.txt", {ENTRY_POINTS!r})
        wheel.writestr(info + "/RECORD", "")
    return name
'''


def git(folder: Path, *arguments: str) -> str:
    """Run Git in the package's folder, without the user's configuration."""
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def write_package(folder: Path, factors: list[float], engine: str = ENGINE) -> list[str]:
    """Create a repository with a commit for each factor of the step time; return the commits."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "backend.py").write_text(BACKEND)
    (folder / "small_engine_row.py").write_text(ROW)
    commits = []
    for number, factor in enumerate(factors):
        (folder / "small_engine.py").write_text(engine.replace("FACTOR = 1.0", f"FACTOR = {factor}  # {number}"))
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", f"Commit {number}")
        commits.append(git(folder, "rev-parse", "HEAD"))
    return commits


def install_row(site: Path) -> None:
    """Declare the engine in a folder of the path, as an installer does; its versions are elsewhere."""
    site.mkdir(parents=True, exist_ok=True)
    (site / "small_engine_row.py").write_text(ROW)
    (information := site / "small_engine-1.0.dist-info").mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: small-engine\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(ENTRY_POINTS)
