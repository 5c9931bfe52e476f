"""Environment variables of a Julia worker; juliacall reads its options at import."""

from __future__ import annotations

from pathlib import Path

from polybench.engines.flux.julia.discovery import EXECUTABLE, FOUND_BY, PROJECT, Julia, find, for_project, version_of
from polybench.engines.flux.julia.extra_packages import required
from polybench.errors import EngineUnavailable

FRAMEWORK_THREADS = "framework_threads"
"""The variant with Julia's default of one thread."""
ALL_CORES = "all_cores"
"""The variant with as many BLAS threads as Julia threads, BLAS's default."""
_BLAS = "blas"
"""Prefix of variants that set the number of BLAS threads."""


def threads(study: int, variants: tuple[str, ...]) -> tuple[int, int]:
    """Return the threads of Julia and of BLAS in a study with `study` threads.

    NNlib runs one task per Julia thread, and each calls BLAS: with 2 x 2 threads on 2 cores, `lenet`'s step
    took 1.5 times as long as with 2 x 1 (batch 128; 1.4 times at 1000). With one Julia thread, the study's
    BLAS threads made no difference.

    Raises:
        EngineUnavailable: several variants set the BLAS threads.
    """
    julia = 1 if FRAMEWORK_THREADS in variants else study
    requested = [int(name.removeprefix(_BLAS)) for name in variants if name.startswith(_BLAS)]
    requested += [study] if ALL_CORES in variants else []
    if len(requested) > 1:
        raise EngineUnavailable(
            f"{'+'.join(variants)} sets the BLAS threads more than once", "use one of these variants"
        )
    return julia, requested[0] if requested else 1 if julia > 1 else study


def environment(
    device: str,  # noqa: ARG001
    study_threads: int,
    variants: tuple[str, ...],
    project: str | None = None,
) -> dict[str, str]:
    """Return the variables of a worker; see `EngineSpec.environment_factory`."""
    try:
        julia = find() if project is None else for_project(project)
    except EngineUnavailable:
        return {}  # the worker fails with reason and hint
    julia_threads, blas_threads = map(str, threads(study_threads, variants))
    if _has_interactive_thread(julia):
        julia_threads += ",0"
    return {
        EXECUTABLE: julia.executable,
        PROJECT: julia.project,
        FOUND_BY: julia.found_by,
        **_library(julia),
        **required(variants),
        "JULIA_NUM_THREADS": julia_threads,
        "OPENBLAS_NUM_THREADS": blas_threads,
        "MKL_NUM_THREADS": blas_threads,
        "PYTHON_JULIACALL_THREADS": julia_threads,
        # Without this, garbage collection with several threads crashes.
        "PYTHON_JULIACALL_HANDLE_SIGNALS": "yes",
        # Julia's defaults, which packages were precompiled with; never inherited.
        "PYTHON_JULIACALL_OPTIMIZE": "2",
        "PYTHON_JULIACALL_CHECK_BOUNDS": "auto",
        "PYTHON_JULIACALL_COMPILED_MODULES": "yes",
    }


def _has_interactive_thread(julia: Julia) -> bool:
    """True if `--threads=N` adds an interactive thread, which would be the one that trains.

    This is so from Julia 1.12 on (NEWS.md: "Julia now defaults to 1 interactive thread"); 1.10 needs no ",0".
    """
    try:
        return version_of(julia) >= (1, 12)
    except EngineUnavailable:
        return False  # the worker reports the error


def _library(julia: Julia) -> dict[str, str]:
    """Return the paths of libjulia for juliacall 0.9.35 and later; without them it starts a second Julia."""
    if not (julia.library and julia.bindir and Path(julia.library).is_file() and Path(julia.bindir).is_dir()):
        return {}
    return {"PYTHON_JULIACALL_LIB": julia.library, "PYTHON_JULIACALL_BINDIR": julia.bindir}
