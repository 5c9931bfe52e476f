"""Locates the Julia package PolyBench, which runs the training."""

from __future__ import annotations

import hashlib
from pathlib import Path

ENGINE = "flux"
NAME = "PolyBench"
SETUP = "polybench setup flux"


def package_folder() -> Path:
    """Return the folder of PolyBench: part of an installed polybench, or `julia/` of a checkout."""
    here = Path(__file__).resolve()  # in another environment, a worker finds the package through a link
    installed = here.parent / NAME
    return installed if installed.is_dir() else here.parents[4] / "julia"


def sources_sha256() -> str:
    """Return the SHA-256 of all sources that Julia compiles; other sources need a new compilation."""
    folder = package_folder()
    digest = hashlib.sha256()
    for file in sorted([folder / "Project.toml", *(folder / "src").rglob("*.jl"), *(folder / "ext").rglob("*.jl")]):
        digest.update(f"{file.relative_to(folder)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()
