"""The engines. ADD AN ENGINE: one file that follows `engines.base.Engine`, and its row here.

A row is data: nothing of a framework is imported before a worker loads `module`.
"""

from __future__ import annotations

import msgspec


class EngineRow(msgspec.Struct, frozen=True):
    """How to find an engine and what may be asked of it.

    `factory` is `module:class`. `extra` is the extra of the polybench package that installs the
    framework. `variants` maps each variant to a description. `memory_bytes` is the anonymous
    memory of a worker of the hungriest variant that has trained `lenet`, less the data.
    `environment` is set for its workers, and so is what `environment_factory`, `module:function`, answers
    when it is given device, threads and variants at run time.
    `start_seconds` is the cold start of a worker for `lenet`, beside two other engines on two cores.
    `copies_data` says that `load` makes a private copy of the batches.
    `does_arithmetic` is False for an engine that only plays a script: there is nothing to check for parity.
    """

    factory: str
    summary: str
    extra: str | None = None
    variants: dict[str, str] = {}
    environment: dict[str, str] = {}
    environment_factory: str | None = None
    memory_bytes: int = 64 << 20
    start_seconds: float = 1.0
    copies_data: bool = False
    does_arithmetic: bool = True


ENGINES: dict[str, EngineRow] = {
    "flux": EngineRow(
        "polybench.engines.flux.engine:FluxEngine",
        "Flux.jl on Julia, through juliacall",
        extra="flux",
        variants={"default_threads": "one Julia thread, as Julia starts; BLAS threads from the study"},
        environment_factory="polybench.engines.flux.julia.environment:environment",
        memory_bytes=700 << 20,
        start_seconds=17.4,
    ),
    "torch": EngineRow(
        "polybench.engines.pytorch.engine:TorchEngine",
        "PyTorch, eager, NCHW",
        extra="torch",
        variants={
            "channels_last": "weights and activations in NHWC memory order",
            "compile": "the training step's forward and loss through torch.compile",
            "cudagraph": "the whole step, replayed as a CUDA graph, with a copy of its batch on the device",
        },
        memory_bytes=350 << 20,
        start_seconds=5.0,
    ),
    "tf": EngineRow(
        "polybench.engines.tensorflow.engine:TensorFlowEngine",
        "TensorFlow, a Keras model in a tf.function step",
        extra="tf",
        variants={
            "keras_fit": "Keras's own model.fit instead of a tf.function step",
            "xla": "the step compiled with XLA (jit_compile=True)",
        },
        # cuDNN's algorithms are chosen by trying them, whatever the user's environment says.
        environment={"TF_CPP_MIN_LOG_LEVEL": "2", "TF_CUDNN_USE_AUTOTUNE": "1"},
        memory_bytes=480 << 20,
        start_seconds=8.1,
        copies_data=True,
    ),
    "reference": EngineRow(
        "polybench.engines.reference.engine:ReferenceEngine",
        "NumPy in float64, the oracle of the parity check",
        memory_bytes=300 << 20,
        # The C library returns large arrays to the kernel, which clears every page of the next one again.
        environment={"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)},
    ),
    "fake": EngineRow(
        "polybench.engines.fake.engine:FakeEngine",
        "a scripted engine with a scripted clock, for tests and demonstrations",
        variants={
            "crash": "the process dies while it is measured",
            "diverge": "the loss stops being finite in a long training",
            "garbage": "answers something that is no message",
            "hang": "never answers when it is measured",
            "nan": "the loss stops being finite",
            "slow": "steps take twice as long",
            "uncountable": "fails when its allocations are counted",
            "unavailable": "says that its framework is missing",
        },
        does_arithmetic=False,
    ),
}
