"""Julia for the `flux` engine: which one it is, what a worker is told about it, and how it is installed.

Nothing here starts Julia inside this process. The Julia code itself is the package in `julia/`.
"""

from __future__ import annotations

from pathlib import Path

ENGINE = "flux"
SETUP = "polybench setup flux"


def package_folder() -> Path:
    """The Julia package PolyBench: part of an installed polybench, or `julia/` of a checkout."""
    installed = Path(__file__).parent / "PolyBench"
    return installed if installed.is_dir() else Path(__file__).parents[2] / "julia"
