"""Engines for a network with biases before batch norm (`tests.example_networks.BIASED`), whose gradients are zero."""

from __future__ import annotations

import numpy as np

from polybench.engines.base import Array, Weights
from polybench.engines.job import Job
from polybench.engines.reference.engine import ReferenceEngine
from polybench.engines.reference.network import Pass

ZERO = ("conv.bias", "dense1.bias")
ROUNDING = {"float64": 5e-14, "float32": 1e-6}
"""Rounding error of a sum that cancels, relative to the norm of all gradients; in float64 half of the tolerance."""


class OtherRounding(ReferenceEngine):
    """Correct: rounding errors differ at every call, like sums of threads in random order."""

    def build(self, job: Job, weights: Weights) -> None:
        self._random = np.random.default_rng(0)
        super().build(job, weights)

    def _pass(self, step: int) -> Pass:
        right = super()._pass(step)
        size = ROUNDING[self._job.dtype] * np.sqrt(sum(np.vdot(g, g) for g in right.gradients.values()))
        noise = {name: size * self._noise(right.gradients[name]) for name in ZERO}
        return right._replace(gradients=dict(right.gradients) | noise)

    def _noise(self, like: Array) -> Array:
        noise = self._random.standard_normal(like.shape)
        return np.asarray(noise / np.linalg.norm(noise))


class Leaking(ReferenceEngine):
    """Gives a bias a ten-thousandth of all gradients, as if batch norm did not cancel it completely."""

    def _pass(self, step: int) -> Pass:
        right = super()._pass(step)
        size = 1e-4 * np.sqrt(sum(np.vdot(g, g) for g in right.gradients.values()))
        return right._replace(gradients=dict(right.gradients) | {"conv.bias": np.full(4, size / 2)})


class Restless(ReferenceEngine):
    """Moves a bias by ten rates per step, whatever its gradient."""

    def run_steps(self, first: int, n: int) -> float:
        seconds = super().run_steps(first, n)
        rate = self._job.workload.optimizer.learning_rate
        self._weights["conv.bias"] = self._weights["conv.bias"] + 10 * rate * n
        return seconds
