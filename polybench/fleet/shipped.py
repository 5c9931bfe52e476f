"""This polybench as a folder that can be sent to machines which lack it, or have another one."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_JULIA = ("Project.toml", "LICENSE", "src", "ext", "models")
"""What a package has inside of the Julia project that a checkout has beside it, as `pyproject.toml` says."""


@contextlib.contextmanager
def shipped() -> Iterator[Path]:
    """The package as an installed one is, also of a checkout; without what it imports."""
    package = Path(__file__).resolve().parents[1]
    julia = package.parent / "julia"
    with tempfile.TemporaryDirectory(prefix="polybench-") as name:
        folder = Path(name) / package.name
        shutil.copytree(package, folder, ignore=shutil.ignore_patterns("__pycache__"))
        if (julia / "Project.toml").is_file():  # of a checkout
            inside = folder / "engines" / "flux" / "julia" / "PolyBench"
            for part in _JULIA:
                copy = shutil.copytree if (julia / part).is_dir() else shutil.copy
                inside.mkdir(exist_ok=True)
                copy(julia / part, inside / part)
        yield folder
