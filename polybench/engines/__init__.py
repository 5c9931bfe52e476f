"""Table of engines.

ADD AN ENGINE: a folder with a class that implements `engines.base.Engine`, and an entry here. An entry is plain
data: no framework is imported until a worker calls `factory`. Other packages declare an `EngineSpec` as an entry
point of the group `polybench.engines`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from polybench.errors import install_command
from polybench.plugins import Registry
from polybench.schema.options import JULIA_SUFFIX, is_program


class Requirement(msgspec.Struct, frozen=True):
    """Software that an engine or variant needs besides its packages: its name, and the command that installs it."""

    name: str
    install: str


class Variant(msgspec.Struct, frozen=True):
    """Alternative configuration of an engine, requested as `engine+variant`."""

    summary: str
    cuda_only: bool = False
    # The step is compiled or replayed as a whole, so layers cannot be timed.
    compiled_as_whole: bool = False
    # It only changes gradients or the optimizer, so a forward pass would be that of the plain engine.
    training_only: bool = False
    # The plain engine with other thread pool sizes; a sweep shows these as a grid.
    changes_thread_pools: bool = False
    # For teaching: what its step times leave out or add. Such a variant is never recommended, nor named in a sentence.
    caveat: str = ""
    # Never suggested: it shows the cost of a feature, or it needs a package that the engine's setup does not install.
    diagnostic_only: bool = False
    needs_extra_package: bool = False
    # Written against the sources of its package; no test and no saved study has ever run it.
    experimental: bool = False
    requires: Requirement | None = None


class EngineSpec(msgspec.Struct, frozen=True):
    """Location, requirements and capabilities of an engine."""

    # `module:callable` that imports the framework and makes the engine, or raises EngineUnavailable.
    factory: str
    summary: str  # what is timed
    extra: str | None = None  # polybench's extra that installs the framework
    variants: dict[str, Variant] = {}
    runs_on: str = "CPU"  # `devices`, as text
    devices: tuple[str, ...] = ("cpu",)
    ran_on: str | None = None  # the last GPU on which `make gpu` ran it, with the date
    # Variables of its workers; `{threads}` in a value stands for the study's threads.
    environment: dict[str, str] = {}
    # Variables of its workers on a GPU, by precision.
    cuda_environment: dict[str, dict[str, str]] = {}
    # Variables of a first run, which uses no code that another process has compiled.
    first_run_environment: dict[str, str] = {}
    # Variables that turn off memory pools, for a process that only counts native allocations.
    counting_environment: dict[str, str] = {}
    # `module:function` that returns variables known only at run time. It takes device, threads and variants; with
    # `project_files` also the project to use.
    environment_factory: str | None = None
    # Pip names of the packages that the extra installs, for environments other than polybench's.
    packages: tuple[str, ...] = ()
    requires: Requirement | None = None
    # `module:function` that takes variants and raises EngineUnavailable if software is missing, without the framework.
    requirement_check: str | None = None
    # A folder that contains one of these files is accepted as an environment (`--env`).
    project_files: tuple[str, ...] = ()
    # Anonymous memory of a worker after training `lenet` with the largest variant, without data. The default is an
    # upper bound: an unmeasured engine gets fewer simultaneous workers.
    memory_bytes: int = 1 << 30
    # Cold start of a worker for `lenet` beside two other engines on two cores; used for estimates only.
    startup_seconds: float = 10.0
    copies_data: bool = True  # `load` makes a private copy of the batches
    computes: bool = True  # False: it only simulates training and cannot be checked
    forward_pass: bool = False  # it implements jobs of the forward pass
    compiled_as_whole: bool = False  # all variants are: the engine lacks `build_layer_operations`
    # Replicas are `processes`, each with its own engine and `Rank`, or `devices` of one process; None: unsupported.
    replicas: Literal["processes", "devices"] | None = None
    replicas_environment: dict[str, str] = {}  # `{replicas}` in a value stands for their number
    no_data_parallel_reason: str = "this engine has no data-parallel training in polybench"
    internal: bool = False  # part of polybench's own checks; `polybench engines` lists it with `--all` only

    def caveat(self, variants: Iterable[str]) -> str | None:
        """Return the caveats of these variants' step times; None without any."""
        texts = [self.variants[name].caveat for name in variants if name in self.variants]
        return "; ".join(filter(None, texts)) or None

    def supports_layer_timing(self, variants: Iterable[str]) -> bool:
        """Return True if these variants time each layer separately."""
        requested = (self.variants[name] for name in variants if name in self.variants)
        return not self.compiled_as_whole and not any(variant.compiled_as_whole for variant in requested)


ALLOCATOR_VARIANTS: dict[str, Variant] = {
    "jemalloc": Variant(
        "jemalloc, preloaded in place of the C library's allocator",
        requires=Requirement("libjemalloc", "apt-get install libjemalloc2"),
    ),
    "system_malloc": Variant("the C library's default malloc policy, regardless of --malloc"),
    "tcmalloc": Variant(
        "tcmalloc, preloaded in place of the C library's allocator",
        requires=Requirement("libtcmalloc", "apt-get install libtcmalloc-minimal4"),
    ),
}
"""Variants of every engine. `protocol.environment` implements them; engines are not involved."""


def _julia_package(name: str) -> Requirement:
    return Requirement(f"{name}.jl", f"polybench setup flux --add-package {name}")


def _julia_variant(
    summary: str,
    package: str,
    *,
    compiled_as_whole: bool = True,
    training_only: bool = False,
    experimental: bool = False,
) -> Variant:
    return Variant(
        summary,
        compiled_as_whole=compiled_as_whole,
        training_only=training_only,
        needs_extra_package=True,
        experimental=experimental,
        requires=_julia_package(package),
    )


_NEEDS_MPI = "needs MPI.jl (CPU) or NCCL.jl (GPU), and `polybench setup flux` installs neither"
_CUDA_UNTESTED = "CPU; CUDA is implemented but has not been tested on a GPU yet"
# With oneDNN, TensorFlow otherwise reuses tensors of 256 KiB and more without calling the C library. The kernels are
# the same (tensorflow/core/common_runtime/mkl_cpu_allocator.h).
_NO_ONEDNN_POOL = {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1"}

_PROGRAM = EngineSpec(
    "polybench.engines.program.engine:make_engine",
    "a user's program",
    environment={
        "NPROC": "{threads}", "PJRT_NPROC": "{threads}", "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        # The sizes of TensorFlow's pools cannot change once the program has computed something at its top.
        "TF_NUM_INTRAOP_THREADS": "{threads}", "TF_NUM_INTEROP_THREADS": "{threads}",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    },
    counting_environment=_NO_ONEDNN_POOL,
    compiled_as_whole=True,
    no_data_parallel_reason="a user's program trains on one device",
)  # fmt: skip
"""The engine of every user's program in Python. Its name is that of its file."""


_JULIA_PROGRAM = EngineSpec(
    "polybench.engines.flux.own_program:make_engine",
    "a user's program in Julia",
    extra="flux",
    environment_factory="polybench.engines.flux.julia.environment:environment",
    packages=("juliacall",),
    requires=Requirement("Julia and Flux.jl", "polybench setup flux"),
    requirement_check="polybench.engines.flux.julia.discovery:check_requirements",
    project_files=("Project.toml", "JuliaProject.toml"),
    compiled_as_whole=True,
    no_data_parallel_reason="a user's program trains on one device",
    memory_bytes=700 << 20,
    startup_seconds=40.0,
    copies_data=False,
)


class _Engines(Registry[EngineSpec]):
    """The table of engines; a file of the user's is one."""

    def find(self, name: str) -> EngineSpec:
        if is_program(name):
            return _JULIA_PROGRAM if name.endswith(JULIA_SUFFIX) else _PROGRAM
        return super().find(name)


ENGINES = _Engines("engine", EngineSpec)
ENGINES |= {
    "flux": EngineSpec(
        "polybench.engines.flux.engine:FluxEngine",
        "Flux.jl with Zygote, a plain `Chain`, through juliacall",
        extra="flux",
        variants={
            "framework_threads": Variant(
                "one Julia thread, Julia's default; BLAS threads from the study", changes_thread_pools=True
            ),
            **{
                f"blas{n}": Variant(f"Julia threads from the study; BLAS threads: {n}", changes_thread_pools=True)
                for n in (1, 2, 4, 8)
            },
            "all_cores": Variant(
                "as many BLAS threads as Julia threads, shared by NNlib's tasks", changes_thread_pools=True
            ),
            "gc_every_step": Variant(
                "a full garbage collection after each step, included in its time",
                caveat="step times include a full garbage collection after each step",
            ),
            "gc_off": Variant(
                "garbage collection between timing blocks only",
                caveat="step times leave out garbage collection, which runs between timing blocks",
            ),
            "enzyme": _julia_variant(
                "gradients by Enzyme.jl, into a `Duplicated` model", "Enzyme", training_only=True, experimental=True
            ),
            "mooncake": _julia_variant("gradients by Mooncake.jl (`AutoMooncake()`)", "Mooncake", training_only=True),
            "reactant": _julia_variant(
                "step compiled with XLA: `Flux.trainstep!` on Reactant.jl arrays", "Reactant", experimental=True
            ),
            "mkl": _julia_variant(
                "Intel MKL in place of OpenBLAS (MKL.jl)", "MKL", compiled_as_whole=False, experimental=True
            ),
            "train": Variant("steps by `Flux.train!` in place of `withgradient` and `update!`", training_only=True),
        },
        runs_on=_CUDA_UNTESTED,
        devices=("cpu", "cuda"),
        environment_factory="polybench.engines.flux.julia.environment:environment",
        # cuDNN.jl cannot disable TensorFloat-32; NVIDIA's libraries read this variable on first use.
        cuda_environment={"fp32": {"NVIDIA_TF32_OVERRIDE": "0"}},
        packages=("juliacall",),
        requires=Requirement("Julia and Flux.jl", "polybench setup flux"),
        requirement_check="polybench.engines.flux.julia.discovery:check_requirements",
        project_files=("Project.toml", "JuliaProject.toml"),
        no_data_parallel_reason="Flux's DistributedUtils " + _NEEDS_MPI,
        memory_bytes=700 << 20,
        startup_seconds=17.4,
        copies_data=False,
        forward_pass=True,
    ),
    "lux": EngineSpec(
        "polybench.engines.flux.lux.engine:LuxEngine",
        "Lux.jl with Zygote, `Training.single_train_step!`, through juliacall",
        extra="flux",
        environment_factory="polybench.engines.flux.lux.engine:environment",
        packages=("juliacall",),
        requires=_julia_package("Lux"),
        requirement_check="polybench.engines.flux.lux.engine:check_requirements",
        project_files=("Project.toml", "JuliaProject.toml"),
        compiled_as_whole=True,
        no_data_parallel_reason="Lux's DistributedUtils " + _NEEDS_MPI,
        copies_data=False,
        forward_pass=True,
    ),
    "torch": EngineSpec(
        "polybench.engines.torch:make_engine",
        "eager PyTorch, NCHW",
        extra="torch",
        packages=("torch",),
        requirement_check="polybench.engines.torch:check_requirements",
        first_run_environment={"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"},
        variants={
            "channels_last": Variant("weights and activations in NHWC memory order"),
            "compile": Variant(
                "forward pass and loss through torch.compile",
                compiled_as_whole=True,
                requires=Requirement("a C++ compiler", "apt-get install g++"),
            ),
            "cudagraph": Variant(
                "the whole step, replayed as a CUDA graph; the batch is copied on the device first",
                cuda_only=True,
                compiled_as_whole=True,
            ),
            "foreach": Variant("multi-tensor optimizer, PyTorch's default on CUDA", training_only=True),
            "math_attention": Variant(
                "attention as separate products and a softmax (`SDPBackend.MATH`) instead of a fused kernel"
            ),
        },
        runs_on="CPU, CUDA",
        devices=("cpu", "cuda"),
        ran_on="NVIDIA H200, 2026-11-27",
        memory_bytes=350 << 20,
        startup_seconds=5.0,
        copies_data=False,
        replicas="processes",
        forward_pass=True,
    ),
    "tf": EngineSpec(
        "polybench.engines.tf:make_engine",
        "a Keras model in a `tf.function` step",
        extra="tf",
        packages=("tensorflow",),
        variants={
            "eager": Variant("the step without `tf.function`: Python calls each operation"),
            "keras_fit": Variant("Keras's own model.fit instead of a tf.function step", training_only=True),
            "no_fusion": Variant(
                "LSTMs without cuDNN's fused kernel (use_cudnn=False); the same as `tf` on the CPU",
                diagnostic_only=True,
            ),
            "unrolled": Variant(
                "LSTMs without a loop: separate operations for each time step (unroll=True)", diagnostic_only=True
            ),
            "xla": Variant("the step compiled with XLA (jit_compile=True)", compiled_as_whole=True),
        },
        runs_on=_CUDA_UNTESTED,
        devices=("cpu", "cuda"),
        # TF_CUDNN_USE_AUTOTUNE overrides the user's environment: cuDNN always benchmarks its algorithms.
        environment={"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "2", "TF_CUDNN_USE_AUTOTUNE": "1"},
        counting_environment=_NO_ONEDNN_POOL,
        memory_bytes=480 << 20,
        startup_seconds=8.1,
        replicas="devices",
        forward_pass=True,
    ),
    "jax": EngineSpec(
        "polybench.engines.jax:make_engine",
        "plain JAX, NCHW: pure functions and optax in one `jax.jit` step",
        extra="jax",
        packages=("jax", "optax"),
        runs_on="CPU, CUDA",
        devices=("cpu", "cuda"),
        ran_on="NVIDIA H100, 2026-11-28",
        # Only NPROC sizes XLA's CPU thread pools (xla/pjrt/utils.cc, DefaultThreadPoolSize). By default JAX
        # preallocates three quarters of a GPU's memory, which hides how much it needs.
        environment={"NPROC": "{threads}", "PJRT_NPROC": "{threads}", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"},
        replicas="devices",
        replicas_environment={"JAX_NUM_CPU_DEVICES": "{replicas}"},
        forward_pass=True,
    ),
    "keras": EngineSpec(
        "polybench.engines.keras:make_engine",
        "Keras 3's `train_on_batch` on TensorFlow, its default backend",
        extra="keras",
        packages=("keras",),
        variants={
            "jax": Variant(
                "on JAX: Keras compiles the step with XLA", requires=Requirement("JAX", install_command("jax"))
            ),
            "torch": Variant(
                "on PyTorch: the step is eager", requires=Requirement("PyTorch", install_command("torch"))
            ),
        },
        requires=Requirement("TensorFlow", install_command("tf")),
        requirement_check="polybench.engines.keras.environment:check_requirements",
        environment_factory="polybench.engines.keras.environment:environment",
        counting_environment=_NO_ONEDNN_POOL,
        compiled_as_whole=True,
        no_data_parallel_reason="polybench does not support keras.distribution.DataParallel yet; tf trains"
        " Keras models data-parallel",
        forward_pass=True,
    ),
    "reference": EngineSpec(
        "polybench.engines.reference.engine:ReferenceEngine",
        "NumPy in float64: the reference of the parity check",
        memory_bytes=300 << 20,
        startup_seconds=1.0,
        copies_data=False,
        no_data_parallel_reason="data-parallel engines are checked against it",
        internal=True,
        forward_pass=True,
    ),
    "fake": EngineSpec(
        "polybench.engines.fake.engine:FakeEngine",
        "simulated training with simulated times, to try polybench without a framework",
        variants={"slow": Variant("steps take twice as long")},
        memory_bytes=64 << 20,
        startup_seconds=1.0,
        copies_data=False,
        computes=False,
        internal=True,
        replicas="processes",
        forward_pass=True,
    ),
}
