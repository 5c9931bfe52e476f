"""The engines. ADD AN ENGINE: one folder with a class that follows `engines.base.Engine`, and its row here.

A row is data: nothing of a framework is imported before a worker loads `factory`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec


class Variant(msgspec.Struct, frozen=True):
    """Another way to use an engine: what it is, and whether it exists on CUDA only.

    `whole_step` says that the step is compiled or replayed as a whole: its layers have no times of their own.
    `pools` says that it is the plain engine with other sizes of its thread pools: a sweep has their matrix.
    `lesson` says that it shows what something costs, and is no way to train: nothing ever advises it.
    `besides` says that it needs a package that the engine's own setup does not bring: nothing advises it.
    """

    summary: str
    cuda_only: bool = False
    whole_step: bool = False
    pools: bool = False
    lesson: bool = False
    besides: bool = False


class EngineRow(msgspec.Struct, frozen=True):
    """How to find an engine and what may be asked of it.

    Attributes:
        factory: `module:class`.
        summary: what is timed, in a line.
        extra: the extra of the polybench package that installs the framework.
        variants: by the name that is asked for, `torch+compile`.
        runs_on: devices, in words.
        devices: kinds of them that it is written for.
        environment: set for its workers; `{threads}` in a value is the study's number of threads.
        cuda_environment: set for its workers on a GPU, by precision.
        environment_factory: `module:function` for variables that are known at run time only; it is given
            device, threads and variants, and what it answers is set as well. Where it has `project_files`, a
            project that is not the one it would find may follow.
        packages: what the extra installs: pip's names, for environments that are not polybench's own.
        project_files: a folder with one of them may be an environment (`--env`), as one with a Python is.
        memory_bytes: anonymous memory of a worker of the hungriest variant that has trained `lenet`, less
            the data. As large as any until somebody measures it: fewer workers then live at one time.
        start_seconds: the cold start of a worker for `lenet`, beside two other engines on two cores; for
            estimates only.
        copies_data: `load` makes a private copy of the batches.
        does_arithmetic: False for an engine that only plays a script: nothing can be checked.
        whole_step: as of a variant, but of all of them: the engine has no `replay`.
        replicas: how several of them train together: as `processes`, each with an engine that is told its
            `Rank`, or as `devices` of one process; None is not at all.
        replicas_environment: set for its workers with several; `{replicas}` in a value is their number.
        why_alone: why not.
    """

    factory: str
    summary: str
    extra: str | None = None
    variants: dict[str, Variant] = {}
    runs_on: str = "CPU"
    devices: tuple[str, ...] = ("cpu",)
    environment: dict[str, str] = {}
    cuda_environment: dict[str, dict[str, str]] = {}
    environment_factory: str | None = None
    packages: tuple[str, ...] = ()
    project_files: tuple[str, ...] = ()
    memory_bytes: int = 1 << 30
    start_seconds: float = 10.0
    copies_data: bool = True
    does_arithmetic: bool = True
    whole_step: bool = False
    replicas: Literal["processes", "devices"] | None = None
    replicas_environment: dict[str, str] = {}
    why_alone: str = "this engine has no data-parallel training in polybench"

    def times_layers(self, variants: Iterable[str]) -> bool:
        """Whether layers have times of their own with these variants."""
        found = (self.variants[name] for name in variants if name in self.variants)
        return not self.whole_step and not any(variant.whole_step for variant in found)


ALLOCATORS: dict[str, Variant] = {
    "jemalloc": Variant("the allocator jemalloc in place of the C library's, preloaded"),
    "systemheap": Variant("the C library's heap by its own rule, whatever --heap says"),
    "tcmalloc": Variant("the allocator tcmalloc in place of the C library's, preloaded"),
}
"""Variants of every engine: `wire.environment` makes them, and the engine knows nothing of it."""

_CUDA_UNTRIED = "CPU; CUDA is written but has not run on a GPU yet"

ENGINES: dict[str, EngineRow] = {
    "flux": EngineRow(
        "polybench.engines.flux.engine:FluxEngine",
        "Flux.jl with Zygote, a plain `Chain`, through juliacall",
        extra="flux",
        variants={
            "default_threads": Variant(
                "one Julia thread, as Julia starts; BLAS threads from the study", pools=True
            ),
            **{
                f"blas{n}": Variant(f"Julia's threads from the study; BLAS threads: {n}", pools=True)
                for n in (1, 2, 4, 8)
            },
            "all_threads": Variant(
                "as many BLAS threads as Julia threads: NNlib's tasks share them", pools=True
            ),
            "gc_every_step": Variant(
                "a full collection of garbage after each step, in its time", lesson=True
            ),
            "gc_off": Variant("no collection of garbage in timed steps, but between them", lesson=True),
            "enzyme": Variant(
                "gradients by Enzyme.jl, into a `Duplicated` model", whole_step=True, besides=True
            ),
            "mooncake": Variant("gradients by Mooncake.jl (`AutoMooncake()`)", whole_step=True, besides=True),
            "reactant": Variant(
                "the step compiled with XLA: `Flux.trainstep!` on Reactant.jl's arrays",
                whole_step=True,
                besides=True,
            ),
            "mkl": Variant("Intel's MKL in place of OpenBLAS (MKL.jl)", besides=True),
            "train": Variant("`Flux.train!` makes the steps, instead of `withgradient` and `update!`"),
        },
        runs_on=_CUDA_UNTRIED,
        devices=("cpu", "cuda"),
        environment_factory="polybench.engines.flux.julia.environment:environment",
        # cuDNN.jl has no mode without TensorFloat-32; NVIDIA's libraries read this when they are first used.
        cuda_environment={"fp32": {"NVIDIA_TF32_OVERRIDE": "0"}},
        packages=("juliacall",),
        project_files=("Project.toml", "JuliaProject.toml"),
        why_alone="Flux's DistributedUtils speaks through MPI.jl (CPU) or NCCL.jl (GPU), and neither is among"
        " the packages that `polybench setup flux` installs",
        memory_bytes=700 << 20,
        start_seconds=17.4,
        copies_data=False,
    ),
    "lux": EngineRow(
        "polybench.engines.flux.lux:LuxEngine",
        "Lux.jl with Zygote, `Training.single_train_step!`, through juliacall",
        extra="flux",
        environment_factory="polybench.engines.flux.lux:environment",
        packages=("juliacall",),
        project_files=("Project.toml", "JuliaProject.toml"),
        whole_step=True,
        why_alone="Lux's DistributedUtils speaks through MPI.jl (CPU) or NCCL.jl (GPU), and neither is among"
        " the packages that `polybench setup flux` installs",
        copies_data=False,
    ),
    "torch": EngineRow(
        "polybench.engines.pytorch.engine:TorchEngine",
        "eager PyTorch, NCHW",
        extra="torch",
        packages=("torch",),
        variants={
            "channels_last": Variant("weights and activations in NHWC memory order"),
            "compile": Variant("the training step's forward and loss through torch.compile", whole_step=True),
            "cudagraph": Variant(
                "the whole step, replayed as a CUDA graph, with a copy of its batch on the device",
                cuda_only=True,
                whole_step=True,
            ),
            "foreach": Variant("an optimizer that updates all tensors at once, as PyTorch's does on CUDA"),
        },
        runs_on=_CUDA_UNTRIED,
        devices=("cpu", "cuda"),
        memory_bytes=350 << 20,
        start_seconds=5.0,
        copies_data=False,
        replicas="processes",
    ),
    "tf": EngineRow(
        "polybench.engines.tensorflow.engine:TensorFlowEngine",
        "a Keras model in a `tf.function` step",
        extra="tf",
        packages=("tensorflow",),
        variants={
            "eager": Variant("the step without `tf.function`: Python calls each operation"),
            "keras_fit": Variant("Keras's own model.fit instead of a tf.function step"),
            "nofuse": Variant(
                "LSTMs without cuDNN's fused kernel (use_cudnn=False); on the CPU nothing else than `tf`",
                lesson=True,
            ),
            "unrolled": Variant(
                "LSTMs without a loop: each time has operations of its own (unroll=True)", lesson=True
            ),
            "xla": Variant("the step compiled with XLA (jit_compile=True)", whole_step=True),
        },
        runs_on=_CUDA_UNTRIED,
        devices=("cpu", "cuda"),
        # cuDNN's algorithms are chosen by trying them, whatever the user's environment says.
        environment={
            "KERAS_BACKEND": "tensorflow",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "TF_CUDNN_USE_AUTOTUNE": "1",
        },
        memory_bytes=480 << 20,
        start_seconds=8.1,
        replicas="devices",
    ),
    "jax": EngineRow(
        "polybench.engines.jax.engine:JaxEngine",
        "plain JAX, NCHW: pure functions and optax in one `jax.jit` step",
        extra="jax",
        packages=("jax", "optax"),
        runs_on=_CUDA_UNTRIED,
        devices=("cpu", "cuda"),
        # Nothing else sizes XLA's thread pools on the CPU (xla/pjrt/utils.cc, DefaultThreadPoolSize). By
        # itself JAX takes three quarters of a GPU's memory, and says nothing about what it needs.
        environment={
            "NPROC": "{threads}",
            "PJRT_NPROC": "{threads}",
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        },
        replicas="devices",
        replicas_environment={"JAX_NUM_CPU_DEVICES": "{replicas}"},
    ),
    "keras": EngineRow(
        "polybench.engines.keras.engine:KerasEngine",
        "Keras 3's `train_on_batch` on TensorFlow, its default backend",
        extra="keras",
        packages=("keras",),
        variants={
            "jax": Variant("on JAX: the step compiled with XLA, as Keras does there"),
            "torch": Variant("on PyTorch: the step is eager"),
        },
        environment_factory="polybench.engines.keras.environment:environment",
        whole_step=True,
        why_alone="keras.distribution.DataParallel has no place in polybench yet; tf has replicas of Keras's"
        " models",
    ),
    "reference": EngineRow(
        "polybench.engines.reference.engine:ReferenceEngine",
        "NumPy in float64, the oracle of the identity check",
        memory_bytes=300 << 20,
        start_seconds=1.0,
        copies_data=False,
        why_alone="it is what replicas are checked against",
    ),
    "fake": EngineRow(
        "polybench.engines.fake.engine:FakeEngine",
        "a script with a clock of its own; tries polybench without a framework",
        variants={
            "crash": Variant("the process dies while it is measured"),
            "diverge": Variant("the loss stops being finite in a long training"),
            "garbage": Variant("answers something that is no message"),
            "hang": Variant("never answers when it is measured"),
            "hungry": Variant("takes 1 GiB of memory when it is measured"),
            "line": Variant("a step takes 2 ms, and 10 us for each of its images"),
            "nan": Variant("the loss stops being finite"),
            "slow": Variant("steps take twice as long"),
            "uneven": Variant("the weight gradient of the last layer that has one takes a step's time more"),
            "uncountable": Variant("fails when its allocations are counted"),
            "unavailable": Variant("says that its framework is missing"),
        },
        memory_bytes=64 << 20,
        start_seconds=1.0,
        copies_data=False,
        does_arithmetic=False,
        replicas="processes",
    ),
}
