"""The Julia package PolyBench, which does the training, and what sets Julia up for it."""

from __future__ import annotations

import hashlib
from pathlib import Path

ENGINE = "flux"
NAME = "PolyBench"
SETUP = "polybench setup flux"


def package_folder() -> Path:
    """The Julia package PolyBench: part of an installed polybench, or `julia/` of a checkout."""
    here = Path(__file__).resolve()  # a worker in another environment finds the package through a link
    installed = here.parent / NAME
    return installed if installed.is_dir() else here.parents[4] / "julia"


def sources_sha256() -> str:
    """SHA-256 of what Julia compiles of it: with other sources it compiles them anew."""
    folder = package_folder()
    digest = hashlib.sha256()
    for file in sorted(
        [folder / "Project.toml", *(folder / "src").rglob("*.jl"), *(folder / "ext").rglob("*.jl")]
    ):
        digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()
