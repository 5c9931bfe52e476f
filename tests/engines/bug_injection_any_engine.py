"""Injects a bug into any engine, through the methods that all engines have.

`tests.engines.bug_injection_any_engine:FewImages+torch` is a factory for `calls.load`: PyTorch's engine with the bug
`FewImages`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

import msgspec
import numpy as np

from polybench.engines import ENGINES
from polybench.engines.base import Array, Engine, Snapshot, Weights
from polybench.engines.job import Job
from polybench.networks.layers import Dropout, Layer
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
    """Counts the images whose largest logit is that of the next class."""

    def count_correct(self, images: Array, labels: Array) -> int:
        return super().count_correct(images, labels - 1)


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
