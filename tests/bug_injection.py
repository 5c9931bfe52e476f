"""Engines with one injected bug each: the parity check must fail all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar
from unittest.mock import patch

import msgspec
import numpy as np

from polybench.data.batches import augment
from polybench.engines.base import Array, PipelineInput, Snapshot, Weights
from polybench.engines.job import NO_DEVIATIONS, Job, NumericalConventions
from polybench.engines.reference import layers as reference_layers
from polybench.engines.reference import network, sequence_layers
from polybench.engines.reference.engine import ReferenceEngine
from polybench.engines.reference.layers import Output, Rows
from polybench.engines.reference.network import LayerObserver, Pass, loss_and_gradients
from polybench.engines.reference.sequence_layers import Activation
from polybench.networks.layers import BatchNorm
from polybench.networks.optimizers import State, apply_update
from polybench.networks.sequence_layers import GATES, REVERSE

ZERO = np.zeros(())


class Correct(ReferenceEngine):
    """The reference without a bug, for comparison."""


class OwnOrder(ReferenceEngine):
    """Correct, but lists its tensors in another order than the model."""

    def snapshot(self, step: int) -> Snapshot:
        loss, gradients, weights = super().snapshot(step)
        return Snapshot(loss, dict(sorted(gradients.items())), dict(reversed(weights.items())))


class UnflippedKernel(ReferenceEngine):
    """Computes a true convolution with weights for cross-correlation."""

    def build(self, job: Job, weights: Weights) -> None:
        flipped = {name: w[..., ::-1, ::-1] if w.ndim == 4 else w for name, w in weights.items()}
        super().build(job, flipped)

    def snapshot(self, step: int) -> Snapshot:
        loss, gradients, weights = super().snapshot(step)
        return Snapshot(loss, gradients, {n: w[..., ::-1, ::-1] if w.ndim == 4 else w for n, w in weights.items()})


class MissingPermutation(ReferenceEngine):
    """Flattens height, width, channels, but has dense weights for channels, height, width."""

    def _order(self) -> Array:
        return np.arange(200).reshape(8, 5, 5).transpose(1, 2, 0).ravel()

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, dict(weights) | {"dense1.weight": weights["dense1.weight"][:, self._order()]})


class WrongMomentum(ReferenceEngine):
    """Updates v <- mu v + (1 - mu) g."""

    def _update(self, w: Array, g: Array, state: State, rate: float) -> tuple[Array, dict[str, Array]]:
        mu = self._job.workload.optimizer.momentum
        v = mu * state.get("v", ZERO) + (1 - mu) * g
        return w - rate * v, {"v": v}


class NesterovMomentum(ReferenceEngine):
    """Looks ahead: correct first gradient, wrong updates."""

    def _update(self, w: Array, g: Array, state: State, rate: float) -> tuple[Array, dict[str, Array]]:
        mu = self._job.workload.optimizer.momentum
        v = mu * state.get("v", ZERO) + g
        return w - rate * (g + mu * v), {"v": v}


class RateInVelocity(ReferenceEngine):
    """Updates V <- mu V + rate g, w <- w - V: correct until the rate changes."""

    def _update(self, w: Array, g: Array, state: State, rate: float) -> tuple[Array, dict[str, Array]]:
        v = self._job.workload.optimizer.momentum * state.get("v", ZERO) + rate * g
        return w - v, {"v": v}


class LateChange(ReferenceEngine):
    """Changes the rate one step too late."""

    def _update(self, w: Array, g: Array, state: State, rate: float) -> tuple[Array, dict[str, Array]]:
        kept = {name: value for name, value in state.items() if name != "rate"}
        w, kept = super()._update(w, g, kept, float(state.get("rate", np.array(rate))))
        return w, kept | {"rate": np.array(rate)}


class EpsilonInsideRoot(ReferenceEngine):
    """Uses Keras's RMSprop."""

    def _update(self, w: Array, g: Array, state: State, rate: float) -> tuple[Array, dict[str, Array]]:
        s = 0.9 * state.get("s", ZERO) + 0.1 * g**2
        return w - rate * g / np.sqrt(s + 1e-7), {"s": s}


class EpsilonBeforeCorrection(ReferenceEngine):
    """Uses Keras's Adam, which adds epsilon to the root of v without bias correction."""

    def _update(self, w: Array, g: Array, state: State, rate: float) -> tuple[Array, dict[str, Array]]:
        t = state.get("t", ZERO) + 1
        m = 0.9 * state.get("m", ZERO) + 0.1 * g
        v = 0.999 * state.get("v", ZERO) + 0.001 * g**2
        alpha = rate * np.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        return w - alpha * m / (np.sqrt(v) + 1e-8), {"t": t, "m": m, "v": v}


class DecoupledDecay(ReferenceEngine):
    """Decays the weights outside of the gradient, like AdamW."""

    def _update(self, w: Array, g: Array, state: State, rate: float) -> tuple[Array, dict[str, Array]]:
        decay = self._job.workload.optimizer.weight_decay
        moved, kept = super()._update(w, g - decay * w, state, rate)
        return moved - rate * decay * w, kept


class DroppedBias(ReferenceEngine):
    """Never trains the last layer's bias."""

    def _pass(self, step: int) -> Pass:
        right = super()._pass(step)
        return right._replace(gradients=dict(right.gradients) | {"dense2.bias": np.zeros(10)})


class DoubledTensor(ReferenceEngine):
    """Doubles a small gradient at the timed precision."""

    def _pass(self, step: int) -> Pass:
        right = super()._pass(step)
        factor = 1 if self._job.dtype == "float64" else 2
        return right._replace(gradients={**right.gradients, "conv1.bias": factor * right.gradients["conv1.bias"]})


class OffByOneBatch(ReferenceEngine):
    """Trains on the next batch."""

    def _pass(self, step: int) -> Pass:
        return super()._pass(step + 1)


class DoubleSoftmax(ReferenceEngine):
    """Computes the cross-entropy of probabilities instead of logits."""

    def _pass(self, step: int) -> Pass:
        batch = step % len(self._images)
        return double_softmax(self._job, self._weights, self._images[batch], self._labels[batch])


def double_softmax(job: Job, weights: Weights, images: Array, labels: Array) -> Pass:
    """Applies a second softmax to loss and gradients."""
    import unittest.mock

    right = reference_layers.cross_entropy

    def wrong(logits: Array, labels: Array, rows: Rows, smoothing: float) -> tuple[float, Array]:
        shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
        p = shifted / shifted.sum(axis=1, keepdims=True)
        loss, dp = right(p, labels, rows, smoothing)
        return loss, p * (dp - (dp * p).sum(axis=1, keepdims=True))

    with unittest.mock.patch.object(reference_layers, "cross_entropy", wrong):
        return loss_and_gradients(job.model, weights, images, labels, job.conventions)


class UndeclaredPooling(ReferenceEngine):
    """Follows NNlib's max-pool rule without declaring it."""

    RULE = NumericalConventions(max_pool_within=3.45e-4, sources={"max_pool_within": "a test"})

    def build(self, job: Job, weights: Weights) -> None:
        super().build(msgspec.structs.replace(job, conventions=self.RULE), weights)

    def conventions(self) -> NumericalConventions:
        return NO_DEVIATIONS


class DeclaredPooling(UndeclaredPooling):
    """Follows NNlib's max-pool rule and declares it."""

    def conventions(self) -> NumericalConventions:
        return self.RULE


class NotFinite(ReferenceEngine):
    """Returns NaN gradients."""

    def _pass(self, step: int) -> Pass:
        right = super()._pass(step)
        return right._replace(gradients={**right.gradients, "conv1.bias": np.nan * right.gradients["conv1.bias"]})


class WrongShape(ReferenceEngine):
    """Returns a tensor in its own layout."""

    def snapshot(self, step: int) -> Snapshot:
        loss, gradients, weights = super().snapshot(step)
        return Snapshot(loss, {n: g.T if isinstance(g, np.ndarray) else g for n, g in gradients.items()}, weights)


class Piped(ReferenceEngine):
    """An input pipeline that prepares everything at once; `varied` contains the bug."""

    varied = staticmethod(augment)

    def open_pipeline(self, stream: PipelineInput) -> None:
        assert stream.augmentations is not None
        batches = zip(stream.order, stream.augmentations, strict=True)
        images = np.stack([self.varied(stream.images[order], chosen) for order, chosen in batches])
        self.load(images.astype(np.float32) / np.float32(255), stream.labels[stream.order])

    def batch(self, step: int) -> tuple[Array, Array]:
        step %= len(self._images)
        return self._images[step].astype(np.float32), self._labels[step]


class WrongFlipAxis(Piped):
    """Flips images vertically."""

    @staticmethod
    def varied(images: Array, decisions: Array) -> Array:  # type: ignore[override]
        return augment(images.swapaxes(2, 3), decisions[:, [0, 2, 1]]).swapaxes(2, 3)


class WrongShift(Piped):
    """Moves the image instead of its crop."""

    @staticmethod
    def varied(images: Array, decisions: Array) -> Array:  # type: ignore[override]
        return augment(images, decisions * np.array([1, -1, -1], np.int8))


class KerasMomentum(ReferenceEngine):
    """Uses 1 minus the momentum in batch norm."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(_with_norms(job, lambda norm: msgspec.structs.replace(norm, momentum=1 - norm.momentum)), weights)


class OtherEpsilon(ReferenceEngine):
    """Uses another framework's default epsilon in batch norm."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(_with_norms(job, lambda norm: msgspec.structs.replace(norm, epsilon=2e-3)), weights)


class StaleStatistics(ReferenceEngine):
    """Never updates running statistics."""

    def _pass(self, step: int) -> Pass:
        return super()._pass(step)._replace(state={})


class OtherMasks(ReferenceEngine):
    """Draws its own dropout masks."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(msgspec.structs.replace(job, seed=job.seed + 1), weights)


class UndeclaredVariance(UndeclaredPooling):
    """Uses Keras's running variance without declaring it."""

    RULE = NumericalConventions(running_variance="biased", sources={"running_variance": "a test"})


class DeclaredVariance(DeclaredPooling):
    """Uses Keras's running variance and declares it."""

    RULE = UndeclaredVariance.RULE


def _with_norms(job: Job, change: Callable[[BatchNorm], BatchNorm]) -> Job:
    layers = tuple(change(layer) if isinstance(layer, BatchNorm) else layer for layer in job.model.layers)
    return msgspec.structs.replace(job, model=msgspec.structs.replace(job.model, layers=layers))


# For a network with biases before batch norm (`tests.example_networks.BIASED`), whose gradients are zero.
CANCELLED = ("conv.bias", "dense1.bias")
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
        noise = {name: size * self._noise(right.gradients[name]) for name in CANCELLED}
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


# For networks with an LSTM.
correct_lstm = sequence_layers.lstm


class SwappedGates(ReferenceEngine):
    """Swaps the rows of output gate and cell, as in the order i, f, o, g."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(job, _swapped(job, weights))

    def snapshot(self, step: int) -> Snapshot:
        loss, gradients, weights = super().snapshot(step)
        return Snapshot(loss, _swapped(self._job, gradients), _swapped(self._job, weights))


def _swapped(job: Job, weights: Weights) -> dict[str, Array]:
    """Swap the last two gates in every tensor with rows for gates."""
    names = {
        f"{layer.name}.{part}"
        for layer, _ in job.model.activations()
        if type(layer).__name__ == "LSTM"
        for part in layer.weight_shapes()
    }

    def swap(value: Array) -> Array:
        *others, configuration, output = np.split(value, len(GATES))
        return np.concatenate([*others, output, configuration])

    return {name: swap(value) if name in names else value for name, value in weights.items()}


class OneBiasMissing(ReferenceEngine):
    """Never trains one of an LSTM's two biases."""

    def _pass(self, step: int) -> Pass:
        found = super()._pass(step)
        gradients = {
            name: np.zeros_like(value) if name.endswith(".recurrent_bias") else value
            for name, value in found.gradients.items()
        }
        return found._replace(gradients=gradients)


class _OtherLSTM(ReferenceEngine):
    wrong: ClassVar[object]

    def _compute(self, step: int, *watch: LayerObserver) -> Pass:
        with patch.object(sequence_layers, "lstm", self.wrong):
            return super()._compute(step, *watch)


def _both_read_forwards(x: Array, tensors: Mapping[str, Array], activation: Activation, *, sequence: bool) -> Output:
    second = {name.removeprefix(REVERSE): value for name, value in tensors.items() if REVERSE in name}
    first = {name: value for name, value in tensors.items() if REVERSE not in name}
    y, back = correct_lstm(x, first, activation, sequence=sequence)
    if not second:
        return y, back
    other, other_back = correct_lstm(x, second, activation, sequence=sequence)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        (dx, own), (dother, others) = (
            one(part) for one, part in zip((back, other_back), np.split(dy, 2, axis=-1), strict=True)
        )
        return dx + dother, own | {REVERSE + name: value for name, value in others.items()}

    return np.concatenate([y, other], axis=-1), backward


def _both_end_at_the_end(x: Array, tensors: Mapping[str, Array], activation: Activation, *, sequence: bool) -> Output:
    y, back = correct_lstm(x, tensors, activation, sequence=True)
    if sequence:
        return y, back

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        whole = np.zeros_like(y)
        whole[:, -1] = dy
        return back(whole)

    return y[:, -1], backward


class ReversedDirection(_OtherLSTM):
    """Reads the second direction from the beginning."""

    wrong = staticmethod(_both_read_forwards)


class WrongFinalState(_OtherLSTM):
    """Takes the outputs of the last time step, at which the second direction has read one value only."""

    wrong = staticmethod(_both_end_at_the_end)


# For networks of transformers.
class _OtherFunction(ReferenceEngine):
    """Replaces a function of the reference's layers."""

    module: ClassVar[object] = sequence_layers
    function: ClassVar[str]
    wrong: ClassVar[object]

    def _compute(self, step: int, *watch: LayerObserver) -> Pass:
        with patch.object(self.module, self.function, self.wrong):
            return super()._compute(step, *watch)


class ShiftedMask(_OtherFunction):
    """Lets each position see the next one."""

    function = "causal_mask"
    wrong = staticmethod(lambda time: np.tri(time, k=1, dtype=bool))


class MissingScale(_OtherFunction):
    """Does not divide the scores by the root of the head's size."""

    function = "score_scale"
    wrong = staticmethod(lambda size: 1.0)


def _softmax_over_queries(scores: Array) -> Array:
    exponentials = np.exp(scores - scores.max())
    return np.asarray(exponentials / exponentials.sum(axis=-2, keepdims=True))


class SoftmaxOverQueries(_OtherFunction):
    """Computes the softmax over the queries instead of the keys."""

    function = "softmax"
    wrong = staticmethod(_softmax_over_queries)


correct_normalize = reference_layers._normalize


class OtherNormEpsilon(_OtherFunction):
    """Uses another epsilon in layer norm and group norm."""

    module, function = reference_layers, "_normalize"
    wrong = staticmethod(lambda x, epsilon: correct_normalize(x, 2 * epsilon))


class TanhGELU(_OtherFunction):
    """Computes the approximation of GELU instead of GELU."""

    module, function = reference_layers, "gelu"
    wrong = staticmethod(reference_layers.gelu_tanh)


class UnaddedGradients(_OtherFunction):
    """Uses the gradient of only one of the layers that share a weight."""

    module, function = network, "add_gradients"
    wrong = staticmethod(lambda first, second: {**first, **second})


class FrozenClassToken(ReferenceEngine):
    """Never trains the class token."""

    def _pass(self, step: int) -> Pass:
        right = super()._pass(step)
        return right._replace(gradients={**right.gradients, "class_token.token": np.zeros(8)})


class CoupledDecay(ReferenceEngine):
    """Adds AdamW's decay to the gradient, as Adam does."""

    def _update(self, w: Array, gradient: Array, state: State, rate: float) -> tuple[Array, State]:
        optimizer = self._job.workload.optimizer
        decay = optimizer.weight_decay if w.ndim > 1 else 0.0
        coupled = msgspec.structs.replace(optimizer, name="adam", weight_decay=decay)
        return apply_update(coupled, rate, w, gradient, state)


class DecayOnBiases(ReferenceEngine):
    """Decays every tensor, also those with one axis."""

    def _update(self, w: Array, gradient: Array, state: State, rate: float) -> tuple[Array, State]:
        matrix, after = super()._update(w[None], gradient[None], state, rate)
        return matrix[0], after


class UnclippedGradients(ReferenceEngine):
    """Does not clip gradients."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(_with_optimizer(job, gradient_clip=0.0), weights)


class ClippedOneByOne(ReferenceEngine):
    """Clips each gradient by its own norm."""

    def build(self, job: Job, weights: Weights) -> None:
        self._clip = job.workload.optimizer.clip_factor
        super().build(_with_optimizer(job, gradient_clip=0.0), weights)

    def _update(self, w: Array, gradient: Array, state: State, rate: float) -> tuple[Array, State]:
        return super()._update(w, self._clip(float(np.linalg.norm(gradient))) * gradient, state, rate)


class LateWarmup(ReferenceEngine):
    """Has the rate of the step before."""

    def _update(self, w: Array, gradient: Array, state: State, rate: float) -> tuple[Array, State]:
        return super()._update(w, gradient, state, rate - self._job.workload.optimizer.learning_rate_at(0))


class UnsmoothedLabels(ReferenceEngine):
    """Ignores label smoothing."""

    def build(self, job: Job, weights: Weights) -> None:
        super().build(
            msgspec.structs.replace(job, model=msgspec.structs.replace(job.model, label_smoothing=0.0)), weights
        )


def _with_optimizer(job: Job, **settings: float) -> Job:
    optimizer = msgspec.structs.replace(job.workload.optimizer, **settings)
    return msgspec.structs.replace(job, workload=msgspec.structs.replace(job.workload, optimizer=optimizer))
