"""Copy of this polybench, for upload to machines that lack it or have another version."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

_JULIA_FILES = ("Project.toml", "LICENSE", "src", "ext", "models")
"""Parts of a checkout's Julia project that an installed package contains, as in `pyproject.toml`."""


@contextlib.contextmanager
def package_copy() -> Iterator[Path]:
    """Copy the package as if it were installed, without its dependencies; also works in a checkout."""
    package = Path(__file__).resolve().parents[1]
    julia = package.parent / "julia"
    with tempfile.TemporaryDirectory(prefix="polybench-") as name:
        folder = Path(name) / package.name
        shutil.copytree(package, folder, ignore=shutil.ignore_patterns("__pycache__"))
        if (julia / "Project.toml").is_file():  # in a checkout
            target = folder / "engines" / "flux" / "julia" / "PolyBench"
            for part in _JULIA_FILES:
                copy = shutil.copytree if (julia / part).is_dir() else shutil.copy
                target.mkdir(exist_ok=True)
                copy(julia / part, target / part)
        yield folder
