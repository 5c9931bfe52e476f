"""What a Julia worker is told, because juliacall reads its options when it is imported."""

from __future__ import annotations

from pathlib import Path

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.extra_packages import needed
from polybench.engines.flux.julia.finding import (
    EXECUTABLE,
    FOUND_BY,
    PROJECT,
    Julia,
    find,
    in_project,
    version_of,
)

ONE_THREAD = "default_threads"
"""The variant that starts Julia as Julia starts: with one thread."""
ALL_THREADS = "all_threads"
"""The variant in which BLAS has as many threads as Julia, as where nobody has told BLAS anything."""
_BLAS = "blas"
"""What a variant is called that gives BLAS another number of threads, before that number."""


def threads(study: int, variants: tuple[str, ...]) -> tuple[int, int]:
    """Threads of Julia and of BLAS where a study asks for `study` threads.

    NNlib runs one task a Julia thread, and each calls BLAS: with 2 x 2 threads on 2 cores, `lenet`'s step
    took 1.5 times as long as with 2 x 1 (batch 128; 1.4 times at 1000). With one Julia thread, the study's
    BLAS threads made no difference.

    Raises:
        Unavailable: the variants name several numbers of BLAS threads.
    """
    julia = 1 if ONE_THREAD in variants else study
    asked = [int(name.removeprefix(_BLAS)) for name in variants if name.startswith(_BLAS)]
    asked += [study] if ALL_THREADS in variants else []
    if len(asked) > 1:
        raise Unavailable(f"{'+'.join(variants)} gives BLAS several numbers of threads", "ask for one")
    return julia, asked[0] if asked else 1 if julia > 1 else study


def environment(
    device: str,  # noqa: ARG001
    study_threads: int,
    variants: tuple[str, ...],
    project: str | None = None,
) -> dict[str, str]:
    """Variables for a worker in a study with so many threads; see `EngineRow.environment_factory`."""
    try:
        julia = find() if project is None else in_project(project)
    except Unavailable:
        return {}  # the worker finds out for itself, and answers with reason and remedy
    julia_threads, blas_threads = map(str, threads(study_threads, variants))
    if _has_interactive_thread(julia):
        julia_threads += ",0"
    return {
        EXECUTABLE: julia.executable,
        PROJECT: julia.project,
        FOUND_BY: julia.found_by,
        **_library(julia),
        **needed(variants),
        "JULIA_NUM_THREADS": julia_threads,
        "OPENBLAS_NUM_THREADS": blas_threads,
        "MKL_NUM_THREADS": blas_threads,
        "PYTHON_JULIACALL_THREADS": julia_threads,
        # Without it, garbage collection with several threads ends in a segmentation fault.
        "PYTHON_JULIACALL_HANDLE_SIGNALS": "yes",
        # Julia's own defaults, and those with which packages are precompiled: never inherited.
        "PYTHON_JULIACALL_OPTIMIZE": "2",
        "PYTHON_JULIACALL_CHECK_BOUNDS": "auto",
        "PYTHON_JULIACALL_COMPILED_MODULES": "yes",
    }


def _has_interactive_thread(julia: Julia) -> bool:
    """Whether `--threads=N` adds an interactive thread to the N: Python's own, which would train on it.

    From Julia 1.12 on (NEWS.md: "Julia now defaults to 1 interactive thread"); 1.10 needs no ",0".
    """
    try:
        return version_of(julia) >= (1, 12)
    except Unavailable:
        return False  # the worker finds out, too


def _library(julia: Julia) -> dict[str, str]:
    """Where libjulia is, for juliacall 0.9.35 and later: before, it started a second Julia to learn that."""
    if not (julia.library and julia.bindir and Path(julia.library).is_file() and Path(julia.bindir).is_dir()):
        return {}
    return {"PYTHON_JULIACALL_LIB": julia.library, "PYTHON_JULIACALL_BINDIR": julia.bindir}
