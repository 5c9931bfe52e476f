"""Starts Julia in this process; only a worker does so."""

from __future__ import annotations

import os
from typing import Any

from polybench.engines.flux.julia import saved_config
from polybench.engines.flux.julia.discovery import EXECUTABLE, PROJECT, Julia, has_cuda, is_other_checkout
from polybench.engines.flux.julia.managed_project import use_managed_project
from polybench.engines.flux.julia.package import SETUP, sources_sha256
from polybench.engines.shared.frameworks import has_cuda_driver
from polybench.errors import EngineUnavailable


def start_julia(julia: Julia) -> Any:
    """Start Julia in this process with a project that has this checkout's package; return its module Main."""
    # juliacall reads both variables at import.
    os.environ |= {EXECUTABLE: julia.executable, PROJECT: use_managed_project(julia).project}
    try:
        import juliacall
    except Exception as error:
        raise EngineUnavailable(
            f"Julia ({julia.executable}, from {julia.found_by}) does not start: {first_error_line(error)}",
            julia.setup,
        ) from error
    return juliacall.Main


def first_error_line(error: Exception) -> str:
    """Return the first line of an error message, or the error's type."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def is_cuda_requested(julia: Julia) -> bool:
    """True if a GPU is visible to this process, and CUDA.jl and cuDNN.jl are installed."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES") != ""
    return visible and has_cuda_driver() and has_cuda(julia)


def compiled_code(julia: Julia) -> str:
    """Describe whether PolyBench's precompiled code is used, or a worker compiles it."""
    if is_other_checkout(julia):
        return "in a copy of the project with this checkout's package"
    if saved_config.precompiled().get(julia.project) in (None, sources_sha256()):
        return "cached"
    return f"outdated: {SETUP} compiles it again"
