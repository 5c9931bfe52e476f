"""The Julia package PolyBench, which does the training, and what sets Julia up for it."""

from __future__ import annotations

from pathlib import Path

ENGINE = "flux"
SETUP = "polybench setup flux"


def package_folder() -> Path:
    """The Julia package PolyBench: part of an installed polybench, or `julia/` of a checkout."""
    here = Path(__file__).resolve()  # a worker in another environment finds the package through a link
    installed = here.parent / "PolyBench"
    return installed if installed.is_dir() else here.parents[4] / "julia"
