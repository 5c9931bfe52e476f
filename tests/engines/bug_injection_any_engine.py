"""Injects a bug into any engine, through the methods that all engines have.

`tests.engines.bug_injection_any_engine:FewImages+torch` is a factory for `calls.load`: PyTorch's engine with the bug
`FewImages`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from polybench.engines import ENGINES
from polybench.engines.base import Array, Engine, Snapshot, Weights
from polybench.engines.job import NO_DEVIATIONS, Job
from polybench.engines.shared.batches import dropout_masks
from polybench.networks.layers import Dropout, Layer, ReLU
from polybench.networks.optimizers import Optimizer

FEW = 16


class NoBug(Engine):
    """The engine without a bug, for comparison."""


class FewImages(Engine):
    """Trains on the first 16 images of every batch."""

    def load(self, images: Array, labels: Array) -> None:
        few = np.arange(images.shape[1]) % FEW
        super().load(*(np.ascontiguousarray(array[:, few]) for array in (images, labels)))


class FrozenStatistics(Engine):
    """Never updates the running statistics in float32."""

    def snapshot(self, step: int) -> Snapshot:
        found = super().snapshot(step)
        frozen = self.job.model.state_shapes() if self.job.dtype == "float32" else ()
        return found._replace(weights={**found.weights, **{name: self.initial[name] for name in frozen}})

    def build(self, job: Job, weights: Weights) -> None:
        self.job, self.initial = job, dict(weights)
        super().build(job, weights)


class LargerGradients(Engine):
    """Computes gradients that are 4 % too large in float32."""

    def build(self, job: Job, weights: Weights) -> None:
        self.factor = 1.04 if job.dtype == "float32" else 1.0
        rate = self.factor * job.workload.optimizer.learning_rate
        super().build(_with_optimizer(job, learning_rate=rate), weights)

    def snapshot(self, step: int) -> Snapshot:
        found = super().snapshot(step)
        return found._replace(gradients={name: self.factor * value for name, value in found.gradients.items()})


class LargerTensor(Engine):
    """Computes a gradient that is 4 % too large in float32, and moves its tensor as much too far."""

    def build(self, job: Job, weights: Weights) -> None:
        self.excess, self.initial = 0.04 if job.dtype == "float32" else 0.0, dict(weights)
        super().build(job, weights)

    def snapshot(self, step: int) -> Snapshot:
        found, name = super().snapshot(step), "dense2.bias"
        if name not in found.gradients:  # the network that checks own dropout
            return found
        gradient, weight = found.gradients[name], found.weights[name]
        gradient, weight = gradient + self.excess * gradient, weight + self.excess * (weight - self.initial[name])
        return found._replace(gradients={**found.gradients, name: gradient}, weights={**found.weights, name: weight})


class IgnoredSchedule(Engine):
    """Never changes the learning rate."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(_with_optimizer(job, lr_schedule=()), weights)


class SkippedChange(Engine):
    """Skips the second change of the learning rate."""

    def build(self, job: Job, weights: Weights) -> None:
        first, _, *others = (*job.workload.optimizer.lr_schedule, (), ())
        super().build(_with_optimizer(job, lr_schedule=tuple(filter(None, (first, *others)))), weights)


class WrongDropoutRate(Engine):
    """Drops a fifth fewer values than asked for with its own generator."""

    def build(self, job: Job, weights: Weights) -> None:
        def wrong(layer: Layer) -> Layer:
            is_wrong = isinstance(layer, Dropout) and job.dropout == "own"
            return msgspec.structs.replace(layer, rate=0.8 * layer.rate) if is_wrong else layer

        model = msgspec.structs.replace(job.model, layers=tuple(map(wrong, job.model.layers)))
        super().build(msgspec.structs.replace(job, model=model), weights)


class WrongDropoutScale(Engine):
    """Does not rescale the values that dropout keeps, with its own generator."""

    def build(self, job: Job, weights: Weights) -> None:
        rates = [layer.rate for layer in job.model.layers if isinstance(layer, Dropout)]
        self.factor = 1 - rates[0] if rates and job.dropout == "own" else 1.0
        super().build(job, weights)

    def load(self, images: Array, labels: Array) -> None:
        super().load(images * np.float32(self.factor), labels)


class WrongCorrect(Engine):
    """Returns the logits of the next class."""

    def logits(self, images: Array) -> Array:
        return np.roll(super().logits(images), 1, axis=-1)


class OneMoreLayer(Engine):
    """Applies a ReLU to the logits."""

    def build(self, job: Job, weights: Weights) -> None:
        model = msgspec.structs.replace(job.model, layers=(*job.model.layers, ReLU()))
        super().build(msgspec.structs.replace(job, model=model), weights)


class WrongWeights(Engine):
    """Has a bias that is a thousandth too large."""

    def build(self, job: Job, weights: Weights) -> None:
        name = [name for name in job.model.weight_shapes() if name.endswith(".bias")][-1]
        super().build(job, {**weights, name: weights[name] * np.float32(1.001)})


class TrainingMode(Engine):
    """Computes the forward pass as in training: with dropout, and the statistics of the batch."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, weights)
        TRAINING_MODE[type(self).__name__.partition("+")[2]](self)


def _train_reference(engine: Any) -> None:
    from polybench.engines.reference.network import _Context, _sequence

    def logits(images: Array) -> Array:
        masks = dropout_masks(engine._job.model, len(images), 0, 0)
        context = _Context(engine._weights, NO_DEVIATIONS, masks, {})
        return _sequence(engine._job.model.layers, images.astype(np.float64), context)[0]

    engine.logits = logits


def _train_tf(engine: Any) -> None:
    import tensorflow as tf

    @tf.function
    def logits(inputs: Any) -> Any:
        return engine._model(inputs, training=True)

    engine._state.compiled = logits


def _train_jax(engine: Any) -> None:
    import jax

    def logits(state: Any, inputs: Any) -> Any:
        return engine._program.network(state["params"], state["buffers"], inputs, training=True)[0]

    engine._compiled = jax.jit(logits)
    engine._program.compute_logits = engine._compiled
    engine._logits = lambda variables, inputs: engine._compiled(engine._state, inputs)


TRAINING_MODE: dict[str, Callable[[Any], object]] = {
    "reference": _train_reference,
    "torch": lambda engine: engine._network.train(),
    "tf": _train_tf,
    "jax": _train_jax,
    "flux": lambda engine: engine._main.Flux.trainmode_b(engine._trainer.state.model),
    "keras": lambda engine: setattr(
        engine, "_train_step", lambda _, batch: engine._model(batch[0], training=True).numpy()
    ),
}


def _with_optimizer(job: Job, **changes: object) -> Job:
    optimizer: Optimizer = msgspec.structs.replace(job.workload.optimizer, **changes)
    return msgspec.structs.replace(job, workload=msgspec.structs.replace(job.workload, optimizer=optimizer))


BUGS = {
    FewImages: {"loss", "gradient", "statistic"},
    FrozenStatistics: {"statistic"},
    LargerGradients: {"size"},
    LargerTensor: {"size"},
    IgnoredSchedule: {"schedule"},
    SkippedChange: {"schedule"},
    WrongDropoutRate: {"kept share", "dropout scale"},
    WrongDropoutScale: {"dropout scale"},
    WrongCorrect: {"correct"},
}
"""The bugs, and the kinds of comparison that must fail."""

FORWARD_BUGS = (FewImages, OneMoreLayer, WrongWeights, TrainingMode)
"""Bugs of a forward pass."""


def __getattr__(name: str) -> Callable[[], Engine]:
    """Return a function that makes the engine with the bug: `BUG+ENGINE`."""
    bug, _, engine_name = name.partition("+")
    if not engine_name:
        raise AttributeError(name)
    module, _, factory = ENGINES[engine_name].factory.partition(":")

    def make_engine() -> Engine:
        engine: Engine = getattr(importlib.import_module(module), factory)()
        correct = type(engine)
        engine.__class__ = type(correct)(name, (globals()[bug], correct), {})
        return engine

    return make_engine
