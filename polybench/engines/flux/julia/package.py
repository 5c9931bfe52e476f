"""The Julia package PolyBench, which does the training, and what sets Julia up for it."""

from __future__ import annotations

from pathlib import Path

ENGINE = "flux"
SETUP = "polybench setup flux"


def package_folder() -> Path:
    """The Julia package PolyBench: part of an installed polybench, or `julia/` of a checkout."""
    installed = Path(__file__).parent / "PolyBench"
    return installed if installed.is_dir() else Path(__file__).parents[4] / "julia"
