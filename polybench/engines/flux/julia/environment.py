"""What a Julia worker is told, because juliacall reads its options when it is imported."""

from __future__ import annotations

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.finding import EXECUTABLE, FOUND_BY, PROJECT, find, in_project

ONE_THREAD = "default_threads"
"""The variant that starts Julia as Julia starts: with one thread."""
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
    return {
        EXECUTABLE: julia.executable,
        PROJECT: julia.project,
        FOUND_BY: julia.found_by,
        "JULIA_NUM_THREADS": julia_threads,
        "OPENBLAS_NUM_THREADS": blas_threads,
        "PYTHON_JULIACALL_THREADS": julia_threads,
        # Without it, garbage collection with several threads ends in a segmentation fault.
        "PYTHON_JULIACALL_HANDLE_SIGNALS": "yes",
        # Julia's own defaults, and those with which packages are precompiled: never inherited.
        "PYTHON_JULIACALL_OPTIMIZE": "2",
        "PYTHON_JULIACALL_CHECK_BOUNDS": "auto",
        "PYTHON_JULIACALL_COMPILED_MODULES": "yes",
    }
