"""What each variant changes in its engine, seen from inside the process of an engine that has trained.

ADD A VARIANT: its row in EFFECTS, with a function that answers otherwise for the plain engine.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from polybench.core.errors import Unavailable
from polybench.core.job import Job
from polybench.core.spec import Workload
from polybench.engines import ENGINES
from polybench.engines.base import Engine
from polybench.models.lenet import LENET


def channels_last(engine: Any) -> object:
    """The memory order of what the first convolution gives."""
    torch = importlib.import_module("torch")
    orders = []
    convolution = engine._network.named["conv1"]
    hook = convolution.register_forward_hook(
        lambda _module, _inputs, output: orders.append(
            (output.is_contiguous(), output.is_contiguous(memory_format=torch.channels_last))
        )
    )
    engine.run_steps(0, 1)
    hook.remove()
    return orders


def compiled(_: Any) -> object:
    """How many graphs the compiler has made since the engine was built."""
    return importlib.import_module("torch._dynamo.utils").counters["stats"]["unique_graphs"]


def eager(engine: Any) -> object:
    """For each convolution whose Python a step runs: whether it computes at once."""
    executing_eagerly = importlib.import_module("tensorflow").executing_eagerly
    seen: list[bool] = []
    kind = type(engine._network.named["conv1"])
    own = kind.call

    def call(*arguments: Any) -> Any:
        seen.append(executing_eagerly())
        return own(*arguments)

    with patch.object(kind, "call", call):
        engine.run_steps(0, 1)
    return seen


def keras_fit(engine: Any) -> object:
    """Whether Keras has made the function that `model.fit` trains with."""
    return engine._model.train_function is not None


def xla(engine: Any) -> object:
    """Whether XLA has the step's code; TensorFlow refuses to show what it has not compiled with it."""
    try:
        return "HloModule" in engine._step.experimental_get_compiler_ir(*engine._batches[0])(stage="hlo")
    except ValueError as refused:
        return "jit_compile=True" not in str(refused)


def keras_tensors(engine: Any) -> object:
    """Whose tensors come out of the model."""
    images, _ = engine._batches[0]
    return type(engine._model(images)).__module__.partition(".")[0]


def foreach(engine: Any) -> object:
    """Whether a step goes through the operations that take all tensors at once."""
    optimizer = importlib.import_module("torch.optim.sgd")
    seen: list[str] = []
    for name in ("_single_tensor_sgd", "_multi_tensor_sgd"):
        own = getattr(optimizer, name)
        setattr(optimizer, name, lambda *a, own=own, name=name, **k: (seen.append(name), own(*a, **k))[1])
    engine.run_steps(0, 1)
    return seen


def julia_threads(_: Any) -> object:
    """Of the Julia in this process."""
    return int(importlib.import_module("juliacall").Main.seval("Threads.nthreads()"))


def julia_sweeps(engine: Any) -> object:
    """Whether there is a full collection for nearly each step: one that meets another thread's is dropped."""
    before = engine.collected().full_sweeps
    engine.run_steps(0, 8)
    return engine.collected().full_sweeps - before >= 7


def julia_collector(engine: Any) -> object:
    """Whether the collector is on while steps are timed."""
    main = importlib.import_module("juliacall").Main
    main.PolyBench.hold(engine._trainer.way)
    return bool(main.seval("GC.enable(true)"))


def julia_step(engine: Any) -> object:
    """What makes the steps: the way by which the function of a step is chosen."""
    way = importlib.import_module("juliacall").Main.seval("trainer -> typeof(trainer.way).parameters[1]")
    return str(way(engine._trainer))


def julia_blas(engine: Any) -> object:
    """Whether the BLAS that Julia calls is MKL."""
    return "mkl" in engine.probe().build["blas"]


class Effect(NamedTuple):
    """What a function sees in the plain engine, and in one with the variant."""

    observe: Callable[[Any], object]
    plain: object
    changed: object


EFFECTS: dict[str, Effect] = {
    "torch+channels_last": Effect(channels_last, [(True, False)], [(False, True)]),
    "torch+compile": Effect(compiled, 0, 1),
    "torch+foreach": Effect(foreach, ["_single_tensor_sgd"], ["_multi_tensor_sgd"]),
    "tf+eager": Effect(eager, [], [True, True]),
    "tf+keras_fit": Effect(keras_fit, False, True),
    "tf+xla": Effect(xla, False, True),
    "keras+torch": Effect(keras_tensors, "tensorflow", "torch"),
    "flux+default_threads": Effect(julia_threads, 2, 1),
    "flux+gc_every_step": Effect(julia_sweeps, False, True),
    "flux+gc_off": Effect(julia_collector, True, False),
    "flux+train": Effect(julia_step, "update", "train"),
    "flux+enzyme": Effect(julia_step, "update", "enzyme"),
    "flux+mooncake": Effect(julia_step, "update", "mooncake"),
    "flux+reactant": Effect(julia_step, "update", "reactant"),
    "flux+mkl": Effect(julia_blas, False, True),
}


class Missing(NamedTuple):
    """The engine's framework is not here; pytest's own exception cannot be sent from process to process."""

    reason: str


def observed(name: str, variants: tuple[str, ...], folder: Path) -> object:
    """What the function of EFFECTS[name] sees after two steps of `lenet` with these variants."""
    module, _, factory = ENGINES[name.partition("+")[0]].factory.partition(":")
    engine: Engine = getattr(importlib.import_module(module), factory)()
    try:
        engine.load_framework()
    except Unavailable as missing:
        return Missing(missing.reason)
    images, labels = (np.load(folder / f"{part}.npy") for part in ("images", "labels"))
    workload = Workload("lenet", "noise", images.shape[1], LENET.optimizer, "fp32", 2)
    if dynamo := sys.modules.get("torch._dynamo"):  # what other tests of this process have compiled
        dynamo.reset()
        dynamo.utils.counters.clear()
    with np.load(folder / "weights.npz") as file:
        engine.build(Job(LENET, workload, "cpu", "float32", variants), dict(file))
    engine.load(images, labels)
    engine.run_steps(0, 2)
    seen = EFFECTS[name].observe(engine)
    engine.close()
    return seen
