"""The environment of a worker: thread pools, the C library's heap, and what its engine needs."""

from __future__ import annotations

import ctypes.util
import importlib
import os
import re
from collections.abc import Collection, Mapping

from polybench.core.errors import Unavailable
from polybench.core.job import PINNED, RANKS
from polybench.core.spec import Heap, Precision
from polybench.engines import ENGINES, EngineRow
from polybench.machine import cores

_THREAD_POOLS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "JULIA_NUM_THREADS",
)

_THE_STUDYS = (
    "MALLOC_",
    PINNED,
    RANKS,
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "JULIA_EXCLUSIVE",
)
"""Variables of the user, and those that begin like these, would speak to some of the engines only."""

_READ_BY_ENGINES = (
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "ONEDNN_", "DNNL_", "LD_PRELOAD", "CUDA_",
    "CUBLAS_", "CUDNN_", "NVIDIA_", "XLA_", "JAX_", "TORCH_", "TORCHINDUCTOR_", "PYTORCH_", "ATEN_",
    "JULIA_", "PYTHON_JULIACALL_", "PYTHONHASHSEED", "PYTHONOPTIMIZE", "PYTHONMALLOC",
    # TF_VAR_* and the like are Terraform's, and may be anything.
    "TF_CPP_", "TF_CUDNN_", "TF_DETERMINISTIC_", "TF_DISABLE_", "TF_ENABLE_", "TF_FORCE_", "TF_GPU_",
    "TF_MKL_", "TF_NUM_", "TF_ONEDNN_", "TF_USE_", "TF_XLA_",
)  # fmt: skip
_COMPILERS = ("CC", "CXX")
"""With these names, not beginning like these: what TorchInductor and Triton compile with."""
_SECRET = re.compile("KEY|TOKEN|SECRET|PASS|AUTH|CREDENTIAL", re.IGNORECASE)

TUNABLES = "GLIBC_TUNABLES"
_MALLOC = "glibc.malloc."

_KEEP = f"{_MALLOC}arena_max=1:{_MALLOC}mmap_threshold={1 << 30}:{_MALLOC}trim_threshold={1 << 32}"
"""No tensor below 1 GiB has a mapping of its own, and the heap's top is not given back below 4 GiB: what one
step frees, the next one finds. By itself glibc gives back what is free at the top of the heap, and takes it
again page by page; whether large tensors lie there depends on what was allocated after them. One arena: those
of further threads are made of heaps of 64 MiB, and an empty one goes back whatever the thresholds say.
https://sourceware.org/glibc/manual/latest/html_node/Memory-Allocation-Tunables.html"""

PRELOADED = {
    "jemalloc": (("jemalloc",), "apt-get install libjemalloc2"),
    "tcmalloc": (("tcmalloc_minimal", "tcmalloc"), "apt-get install libtcmalloc-minimal4"),
}
"""Variant -> the library's names, and what installs it."""


def worker_environment(  # noqa: PLR0913, PLR0917 - all that a cell decides
    row: EngineRow,
    device: str,
    threads: int,
    variants: tuple[str, ...] = (),
    heap: Heap = "keep",
    cpus: Collection[int] = (),
    project: str | None = None,
    precision: Precision = "fp32",
    replicas: int = 1,
) -> dict[str, str]:
    """What is set for a worker, on top of the user's own environment.

    Thread pools of libraries that read theirs at import are set here, the others by the engine. `cpus` are
    those to which the worker binds itself; replicas that are processes have a share each of those, or of all
    that are usable, and of the threads. `project` is a folder of the engine's own kind, in place of that
    which it finds.

    Raises:
        Unavailable: a variant preloads a library that is not there, or the engine has no replicas.
    """
    if replicas > 1 and row.replicas is None:
        able = ", ".join(name for name, one in ENGINES.items() if one.replicas and one.does_arithmetic)
        raise Unavailable(row.why_alone, f"leave --replicas out, or take an engine that has them: {able}")
    shares: list[str] = []
    if replicas > 1 and row.replicas == "processes":
        threads = max(1, threads // replicas)
        shares = [",".join(map(str, share)) for share in cores.divide(cpus, replicas)]
    environment = dict.fromkeys(_THREAD_POOLS, str(threads))
    if device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""  # no context, no memory on a GPU that is not measured
    else:
        environment |= row.cuda_environment.get(precision, {})
    if shares:
        environment |= {RANKS: ";".join(shares)} | ({PINNED: shares[0]} if shares[0] else {})
    elif cpus:
        environment[PINNED] = ",".join(map(str, cpus))
    environment |= heap_environment("system" if "systemheap" in variants else heap) | _preloaded(variants)
    own = {name: value.replace("{threads}", str(threads)) for name, value in row.environment.items()}
    if replicas > 1:
        several = row.replicas_environment.items()
        own |= {name: value.replace("{replicas}", str(replicas)) for name, value in several}
    return environment | own | _from_factory(row, device, threads, variants, project)


def heap_environment(heap: Heap, user: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variable that makes the C library follow this policy, with the user's tunables of anything else."""
    theirs = [one for one in user.get(TUNABLES, "").split(":") if one and not one.startswith(_MALLOC)]
    return {TUNABLES: ":".join([*theirs, *([_KEEP] if heap == "keep" else [])])}


def inherited(user: Mapping[str, str]) -> dict[str, str]:
    """The user's environment without what is the study's own: the C library's heap, and where threads run."""
    return {name: value for name, value in user.items() if not name.startswith(_THE_STUDYS)}


def recorded(user: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """What engines are known to read of the user's environment, and nothing sets: the only part that is kept.

    Args:
        user: the user's environment.
        given: what is set for a worker.
    """
    return {
        name: value
        for name, value in sorted(inherited(user).items())
        if (name.startswith(_READ_BY_ENGINES) or name in _COMPILERS)
        and name not in given
        and not _SECRET.search(name)
    }


def _preloaded(variants: tuple[str, ...]) -> dict[str, str]:
    """Another allocator in place of the C library's."""
    for variant in variants:
        names, remedy = PRELOADED.get(variant, ((), ""))
        found = next(filter(None, map(ctypes.util.find_library, names)), None)
        if found is not None:
            return {"LD_PRELOAD": found}
        if names:
            raise Unavailable(f"the library {variant} is not installed", remedy)
    return {}


def _from_factory(
    row: EngineRow, device: str, threads: int, variants: tuple[str, ...], project: str | None
) -> dict[str, str]:
    if row.environment_factory is None:
        return {}
    module, _, name = row.environment_factory.partition(":")
    given = (device, threads, variants, *([project] if project else []))
    made: dict[str, str] = getattr(importlib.import_module(module), name)(*given)
    return made
