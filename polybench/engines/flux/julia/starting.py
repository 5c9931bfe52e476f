"""Julia in this process, and what is said of it; what a worker does, and nobody else."""

from __future__ import annotations

import os
from typing import Any

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.finding import EXECUTABLE, PROJECT, Julia, belongs_to_another, has_cuda
from polybench.engines.flux.julia.own_project import with_own_package
from polybench.engines.flux.julia.package import SETUP, sources_sha256
from polybench.engines.flux.julia.remembered import precompiled
from polybench.engines.support.frameworks import driver_is_there


def start_julia(julia: Julia) -> Any:
    """Julia's module Main, Julia running in this process, with this polybench's package in its project."""
    # juliacall reads both when it is imported.
    os.environ |= {EXECUTABLE: julia.executable, PROJECT: with_own_package(julia).project}
    try:
        import juliacall
    except Exception as error:
        raise Unavailable(
            f"Julia ({julia.executable}, from {julia.found_by}) does not start: {first_line(error)}",
            julia.setup,
        ) from error
    return juliacall.Main


def first_line(error: Exception) -> str:
    """What Julia or Python says first of an error; its name where that is nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def cuda_wanted(julia: Julia) -> bool:
    """Whether there is a GPU that this process may see, and CUDA.jl and cuDNN.jl for it."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    return visible and driver_is_there() and has_cuda(julia)


def compiled_code(julia: Julia) -> str:
    """Whether Julia finds PolyBench as setup had it compiled, or compiles it anew in a worker."""
    if belongs_to_another(julia):
        return "in a copy of the project, which has this polybench's package"
    if precompiled().get(julia.project) in (None, sources_sha256()):
        return "kept"
    return f"of another polybench: {SETUP} compiles this one's"
