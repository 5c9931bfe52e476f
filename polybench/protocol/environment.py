"""Environment variables of a worker: thread pools, malloc policy, and variables of its engine."""

from __future__ import annotations

import ctypes.util
import hashlib
import importlib
import os
from collections.abc import Collection, Mapping

from polybench.engines import ENGINES, EngineSpec
from polybench.engines.job import PINNED, RANKS
from polybench.errors import EngineUnavailable
from polybench.machine import cores
from polybench.schema.options import Malloc, Pass, Precision

_THREAD_POOLS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "JULIA_NUM_THREADS",
)

_RESERVED_PREFIXES = (
    "MALLOC_",
    PINNED,
    RANKS,
    "GOMP_CPU_AFFINITY",
    "KMP_AFFINITY",
    "OMP_PLACES",
    "OMP_PROC_BIND",
    "JULIA_EXCLUSIVE",
)
"""Prefixes of user variables that workers do not inherit, since they affect only some of the engines."""

_ENGINE_PREFIXES = (
    # Start of processes, and the search for libraries and modules.
    "LD_AUDIT", "LD_BIND_", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHON",
    # Libraries below the engines.
    "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "ONEDNN_", "DNNL_", "DISABLE_DNNL_", "NPY_",
    "NUMPY_", "TCMALLOC_", "THP_", "USE_NNPACK", "CUDA_", "CUBLAS_", "CUDNN_", "NCCL_", "NVIDIA_", "GLOO_",
    "INTEL_ISA_",
    # Engines and their compilers.
    "AOTI", "AOT_", "ATEN_", "AUTOGRAPH_", "CUTEDSL_", "CUTLASS_", "DISABLE_LLVM_", "DISABLE_PTXAS_", "DTENSOR_",
    "ENABLE_PERSISTENT_", "ENABLE_TEMPLATE_", "ENABLE_TMA_", "FX_", "INDUCTOR_", "JAX", "JULIA", "KERAS_", "KINETO_",
    "LTC_", "MLIR_", "PARTITIONER_", "PJRT_", "PYTORCH_", "QUACK_", "TENSORIFY_", "TORCH", "TRITON_", "XLA_",
    # A prefix TF_ would include Terraform's TF_VAR_*.
    "TF2_", "TF_AUTOTUNE_", "TF_AUTO_", "TF_BFC_", "TF_CONV2D_", "TF_CPP_", "TF_CPU_", "TF_CUBLAS_", "TF_CUDA_",
    "TF_CUDNN_", "TF_CUFFT_", "TF_DATA_EXPERIMENT_", "TF_DEBUG_", "TF_DETERMINISTIC_", "TF_DEVICE_", "TF_DISABLE_",
    "TF_EAGER_", "TF_ENABLE", "TF_FORCE_", "TF_FP16_", "TF_FUNCTION_", "TF_GPU_", "TF_GRAPH_", "TF_JIT", "TF_MATMUL_",
    "TF_MIN_", "TF_MKL_", "TF_NUM_", "TF_ONEDNN_", "TF_OPTIONALS_", "TF_OVERRIDE_", "TF_PER_DEVICE_", "TF_PFLR_",
    "TF_PLUGGABLE_", "TF_RUN_", "TF_SET_", "TF_SYNC_", "TF_TRT_", "TF_USE_", "TF_XLA_",
)  # fmt: skip
"""Prefixes of the variables that engines read: the names in the sources of each framework."""

_RECORDED = frozenset((
    # Start of processes, the search for libraries and modules, and compilers.
    "CC", "CXX", "LD_AUDIT", "LD_BIND_NOW", "LD_LIBRARY_PATH", "LD_PRELOAD", "GLIBC_TUNABLES",
    "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONHOME", "PYTHONMALLOC", "PYTHONNOUSERSITE",
    "PYTHONOPTIMIZE", "PYTHONPATH", "PYTHONUNBUFFERED", "PYTHON_GIL", "PYTHON_JIT",
    # Allocators and threads.
    "MALLOC_ARENA_MAX", "MALLOC_ARENA_TEST", "MALLOC_CHECK_", "MALLOC_CONF", "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_", "MALLOC_PERTURB_", "MALLOC_TOP_PAD_", "MALLOC_TRIM_THRESHOLD_",
    "TCMALLOC_RELEASE_RATE", "THP_MEM_ALLOC_ENABLE", "GOMP_CPU_AFFINITY", "GOMP_SPINCOUNT", "KMP_AFFINITY",
    "KMP_BLOCKTIME", "KMP_DUPLICATE_LIB_OK", "KMP_HW_SUBSET", "KMP_LIBRARY", "KMP_SETTINGS", "KMP_TPAUSE",
    "OMP_DYNAMIC", "OMP_MAX_ACTIVE_LEVELS", "OMP_NESTED", "OMP_NUM_THREADS", "OMP_PLACES", "OMP_PROC_BIND",
    "OMP_SCHEDULE", "OMP_STACKSIZE", "OMP_THREAD_LIMIT", "OMP_WAIT_POLICY", "JULIA_EXCLUSIVE", "POLYBENCH_PINNED",
    # Libraries below the engines.
    "MKL_CBWR", "MKL_DEBUG_CPU_TYPE", "MKL_DYNAMIC", "MKL_ENABLE_INSTRUCTIONS", "MKL_NUM_THREADS",
    "MKL_THREADING_LAYER", "MKL_VERBOSE", "OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OPENBLAS_VERBOSE",
    "BLIS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "VECLIB_MAXIMUM_THREADS", "NPY_DISABLE_CPU_FEATURES",
    "ONEDNN_CPU_ISA_HINTS", "ONEDNN_DEFAULT_FPMATH_MODE", "ONEDNN_MAX_CPU_ISA", "ONEDNN_PRIMITIVE_CACHE_CAPACITY",
    "ONEDNN_VERBOSE", "DNNL_MAX_CPU_ISA", "DNNL_VERBOSE", "USE_NNPACK", "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_CACHE_DISABLE", "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING", "CUDA_VISIBLE_DEVICES", "CUDNN_LOGLEVEL_DBG", "NCCL_ALGO", "NCCL_DEBUG",
    "NCCL_P2P_DISABLE", "NCCL_PROTO", "NVIDIA_TF32_OVERRIDE", "NVIDIA_VISIBLE_DEVICES",
    # Engines and their compilers.
    "ATEN_CPU_CAPABILITY", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_JIT",
    "PYTORCH_NO_CUDA_MEMORY_CACHING", "TORCHDYNAMO_DISABLE", "TORCHDYNAMO_SUPPRESS_ERRORS",
    "TORCHINDUCTOR_COMPILE_THREADS", "TORCHINDUCTOR_CPP_WRAPPER", "TORCHINDUCTOR_CUDAGRAPHS",
    "TORCHINDUCTOR_DETERMINISTIC", "TORCHINDUCTOR_DISABLED_PASSES", "TORCHINDUCTOR_FREEZING",
    "TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_LAYOUT_OPTIMIZATION", "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCHINDUCTOR_USE_FAST_MATH", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "TORCH_COMPILE_BACKEND",
    "TORCH_COMPILE_DISABLE", "TORCH_COMPILE_OVERRIDE_BACKENDS", "TORCH_CUDNN_V8_API_DISABLED", "TRITON_INTERPRET",
    "TF2_BEHAVIOR", "TF_CPP_MIN_LOG_LEVEL", "TF_CUDNN_USE_AUTOTUNE", "TF_DETERMINISTIC_OPS", "TF_DISABLE_MKL",
    "TF_ENABLE_ONEDNN_OPTS", "TF_FORCE_GPU_ALLOW_GROWTH", "TF_FUNCTION_JIT_COMPILE_DEFAULT", "TF_GPU_ALLOCATOR",
    "TF_GPU_THREAD_MODE", "TF_NUM_INTEROP_THREADS", "TF_NUM_INTRAOP_THREADS", "TF_USE_LEGACY_KERAS",
    "TF_XLA_FLAGS", "KERAS_BACKEND", "KERAS_NNX_ENABLED", "KERAS_TORCH_DEVICE", "JAX_COMPILER_ENABLE_REMAT_PASS",
    "JAX_CPU_ENABLE_ASYNC_DISPATCH", "JAX_DEBUG_NANS", "JAX_DEFAULT_DEVICE", "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_DISABLE_JIT", "JAX_DISABLE_MOST_OPTIMIZATIONS", "JAX_ENABLE_COMPILATION_CACHE", "JAX_ENABLE_X64",
    "JAX_NUM_CPU_DEVICES", "JAX_PLATFORMS", "JAX_PLATFORM_NAME", "JAX_THREEFRY_PARTITIONABLE", "XLA_FLAGS",
    "XLA_PYTHON_CLIENT_ALLOCATOR", "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_PREALLOCATE",
    "JULIA_CPU_TARGET", "JULIA_CPU_THREADS", "JULIA_CUDA_HARD_MEMORY_LIMIT", "JULIA_CUDA_MEMORY_POOL",
    "JULIA_DEPOT_PATH", "JULIA_HEAP_SIZE_HINT", "JULIA_LOAD_PATH", "JULIA_NUM_GC_THREADS", "JULIA_NUM_THREADS",
    "JULIA_PROJECT",
))  # fmt: skip
"""The variables whose values documents record: settings, which hold no secrets. The others have only a common hash."""

TUNABLES = "GLIBC_TUNABLES"
_MALLOC_PREFIX = "glibc.malloc."

_RETAIN_TUNABLES = ":".join(
    f"{_MALLOC_PREFIX}{tunable}"
    for tunable in ("arena_max=1", f"mmap_threshold={1 << 30}", f"trim_threshold={1 << 32}")
)
"""Tunables of `--malloc retain`: each step reuses the memory that the previous step freed.

Allocations below 1 GiB do not get a mapping of their own, and glibc does not trim the heap's top below 4 GiB.
By default glibc trims free memory at the top of the heap, and later maps it again page by page. Whether large
tensors lie there depends on later allocations. A single arena is necessary: glibc releases empty heaps of
other arenas (64 MiB each) whatever the thresholds are.
https://sourceware.org/glibc/manual/latest/html_node/Memory-Allocation-Tunables.html"""

PRELOADED_ALLOCATORS = {
    "jemalloc": (("jemalloc",), "apt-get install libjemalloc2"),
    "tcmalloc": (("tcmalloc_minimal", "tcmalloc"), "apt-get install libtcmalloc-minimal4"),
}
"""Variant -> names of the library, and the command that installs it."""


def worker_environment(  # noqa: PLR0913, PLR0917 - all parts of a configuration
    engine_spec: EngineSpec,
    device: str,
    threads: int,
    variants: tuple[str, ...] = (),
    malloc: Malloc = "retain",
    cpus: Collection[int] = (),
    project: str | None = None,
    precision: Precision = "fp32",
    replicas: int = 1,
    pass_: Pass = "training",
) -> dict[str, str]:
    """Return the variables that polybench sets for a worker, in addition to the user's environment.

    These include the thread pools of libraries that read their size at import; the engine sets the others. Replicas
    that are processes divide the threads and `cpus`, or all usable CPUs, among themselves. `project` is a folder with
    an environment of the engine's own kind, in place of the default one. Raises EngineUnavailable if the library of a
    variant is not installed, or the engine does not support replicas or the forward pass.
    """
    if pass_ == "forward" and not engine_spec.forward_pass:
        engines_with_it = ", ".join(name for name, one in ENGINES.items() if one.forward_pass and not one.internal)
        raise EngineUnavailable(
            "this engine does not have the forward pass yet", f"use an engine that has it: {engines_with_it}"
        )
    if replicas > 1 and engine_spec.replicas is None:
        engines_with_replicas = ", ".join(name for name, one in ENGINES.items() if one.replicas and one.computes)
        raise EngineUnavailable(
            engine_spec.no_data_parallel_reason,
            f"remove --replicas, or use an engine that supports it: {engines_with_replicas}",
        )
    cpu_shares: list[str] = []
    if replicas > 1 and engine_spec.replicas == "processes":
        threads = max(1, threads // replicas)
        cpu_shares = [",".join(map(str, share)) for share in cores.split_cores(cpus, replicas)]
    environment = dict.fromkeys(_THREAD_POOLS, str(threads))
    if device == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = (
            ""  # prevents a CUDA context, and its memory, on a GPU that is not measured
        )
    else:
        environment |= engine_spec.cuda_environment.get(precision, {})
    if cpu_shares:
        environment |= {RANKS: ";".join(cpu_shares)} | ({PINNED: cpu_shares[0]} if cpu_shares[0] else {})
    elif cpus:
        environment[PINNED] = ",".join(map(str, cpus))
    environment |= malloc_env_vars("system" if "system_malloc" in variants else malloc) | _preload_variables(variants)
    engine_variables = {
        name: value.replace("{threads}", str(threads)) for name, value in engine_spec.environment.items()
    }
    if replicas > 1:
        templates = engine_spec.replicas_environment.items()
        engine_variables |= {name: value.replace("{replicas}", str(replicas)) for name, value in templates}
    return environment | engine_variables | _variables_from_factory(engine_spec, device, threads, variants, project)


def malloc_env_vars(malloc: Malloc, user_environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the glibc tunables of a malloc policy, and the user's other tunables."""
    other_tunables = [
        tunable
        for tunable in user_environment.get(TUNABLES, "").split(":")
        if tunable and not tunable.startswith(_MALLOC_PREFIX)
    ]
    return {TUNABLES: ":".join([*other_tunables, *([_RETAIN_TUNABLES] if malloc == "retain" else [])])}


def inherited_env_vars(user_environment: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment without malloc settings and thread affinity, which the study decides."""
    return {name: value for name, value in user_environment.items() if not name.startswith(_RESERVED_PREFIXES)}


def recorded_env_vars(user_environment: Mapping[str, str], worker_variables: Mapping[str, str]) -> dict[str, str]:
    """Return the user's variables that documents record, except overridden ones."""
    inherited = _engine_variables(user_environment, worker_variables)
    return {name: value for name, value in inherited.items() if name in _RECORDED}


def unrecorded_env_hash(user_environment: Mapping[str, str], worker_variables: Mapping[str, str]) -> str:
    """Return one hash of the variables that engines may read and no document records; "" without any.

    Logs with names and the keys of cached parity checks contain it, so that a change is noticed.
    """
    inherited = _engine_variables(user_environment, worker_variables)
    others = [f"{name}={value}" for name, value in inherited.items() if name not in _RECORDED]
    return hashlib.sha256("\0".join(others).encode("utf-8", "surrogateescape")).hexdigest() if others else ""


def _engine_variables(user_environment: Mapping[str, str], worker_variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in sorted(inherited_env_vars(user_environment).items())
        if (name in _RECORDED or name.startswith(_ENGINE_PREFIXES)) and name not in worker_variables
    }


def overridden_env_vars(
    user_environment: Mapping[str, str], worker_variables: Mapping[str, str]
) -> dict[str, tuple[str, str | None]]:
    """Return the recorded variables that a worker does not inherit: the user's value and the worker's, None if unset.

    The GPUs that are hidden from a worker on the CPU are left out.
    """
    worker = {**inherited_env_vars(user_environment), **worker_variables}
    return {
        name: (value, worker.get(name))
        for name, value in sorted(user_environment.items())
        if name in _RECORDED
        and (name in worker_variables or name.startswith(_RESERVED_PREFIXES))
        and worker.get(name) != value
        and not (name == "CUDA_VISIBLE_DEVICES" and not worker[name])
    }


def _preload_variables(variants: tuple[str, ...]) -> dict[str, str]:
    """Return the variable that replaces the C library's allocator, if a variant does so."""
    for variant in variants:
        names, hint = PRELOADED_ALLOCATORS.get(variant, ((), ""))
        library = next(filter(None, map(ctypes.util.find_library, names)), None)
        if library is not None:
            return {"LD_PRELOAD": library}
        if names:
            raise EngineUnavailable(f"library {variant} is not installed", hint)
    return {}


def _variables_from_factory(
    engine_spec: EngineSpec, device: str, threads: int, variants: tuple[str, ...], project: str | None
) -> dict[str, str]:
    if engine_spec.environment_factory is None:
        return {}
    module, _, name = engine_spec.environment_factory.partition(":")
    arguments = (device, threads, variants, *([project] if project else []))
    variables: dict[str, str] = getattr(importlib.import_module(module), name)(*arguments)
    return variables
