"""The reference's forward and backward pass through a whole network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, assert_never

from polybench.core.job import EXACT, Conventions
from polybench.core.layers import (
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    ReLU,
    Residual,
)
from polybench.core.model import Model
from polybench.core.sequence_layers import LSTM, Embedding, MeanOverTime
from polybench.engines.base import Array, LayerTensors, Weights
from polybench.engines.reference import layers, sequences, windows
from polybench.engines.reference.layers import Backward, Output
from polybench.engines.support.arrays import as_input


class Pass(NamedTuple):
    """What one batch gives: its mean loss, the gradient for every weight, and the new running statistics."""

    loss: float
    gradients: Mapping[str, Array]
    state: Mapping[str, Array]


Watch = Callable[[LayerTensors], None]
"""Told of each layer as the backward pass comes to it: the order of `core.layers.activations` from its end.

A residual block is here x + x, of what its body puts out.
"""


def _nobody(tensors: LayerTensors) -> None:
    pass


class _Context(NamedTuple):
    """What layers need beside their input; `state` gets the new running statistics."""

    weights: Weights
    conventions: Conventions
    masks: Weights
    state: dict[str, Array]
    watch: Watch = _nobody


def loss_and_gradients(
    model: Model,
    weights: Weights,
    images: Array,
    labels: Array,
    conventions: Conventions = EXACT,
    masks: Weights | None = None,
    watch: Watch = _nobody,
) -> Pass:
    """One training batch, in float64: the mean cross-entropy and what follows from it.

    Args:
        model: whose layers are gone through forwards, then backwards.
        weights: all of `model.tensor_shapes()`, canonical, float64.
        images: (batch, *model.input_shape), any float type, or integers where they are tokens.
        labels: (batch), int64.
        conventions: which rules max-pool gradients and batch norm follow.
        masks: of the dropout layers, by name; see `dropout_masks`.
        watch: told of every layer's tensors.
    """
    context = _Context(weights, conventions, masks or {}, {}, watch)
    logits, backward = _sequence(model.layers, as_input(images, "float64"), context)
    loss, dlogits = layers.cross_entropy(logits, labels)
    _, gradients = backward(dlogits)
    return Pass(loss, {name: gradients[name] for name in model.weight_shapes()}, context.state)


def forward(layer: Layer, x: Array, weights: Weights) -> Array:
    """One layer that does the same at training and at inference."""
    y, _ = _layer(layer, x, _Context(weights, EXACT, {}, {}))
    return y


def _sequence(sequence: Sequence[Layer], x: Array, context: _Context) -> Output:
    """One layer after the other; gradients are named in full, `layer_name.part`."""
    backwards = []
    for layer in sequence:
        y, backward = _layer(layer, x, context)
        watched = backward if isinstance(layer, Residual) else _watched(x, y, backward, context.watch)
        backwards.append((getattr(layer, "name", ""), watched))
        x = y

    def through_all(dy: Array) -> tuple[Array, dict[str, Array]]:
        gradients: dict[str, Array] = {}
        for name, backward in reversed(backwards):
            dy, own = backward(dy)
            gradients |= {f"{name}.{part}" if name else part: value for part, value in own.items()}
        return dy, gradients

    return x, through_all


def _watched(x: Array, y: Array, backward: Backward, watch: Watch) -> Backward:
    def told(dy: Array) -> tuple[Array, dict[str, Array]]:
        dx, gradients = backward(dy)
        watch(LayerTensors(x, dy, y, dx, gradients))
        return dx, gradients

    return told


def _layer(layer: Layer, x: Array, context: _Context) -> Output:  # noqa: C901, PLR0911, PLR0912 - a line for each kind
    weights = context.weights
    match layer:
        case Conv(name=name):
            bias = weights[f"{name}.bias"] if layer.bias else None
            return windows.conv(x, weights[f"{name}.weight"], bias, layer.stride, layer.pad)
        case Dense(name=name):
            return layers.dense(x, weights[f"{name}.weight"], weights[f"{name}.bias"])
        case BatchNorm(name=name):
            mean, variance = layers.batch_statistics(x, context.conventions.batch_norm_sums)
            context.state.update(_running_statistics(layer, x.size // len(mean), mean, variance, context))
            own = (weights[f"{name}.weight"], weights[f"{name}.bias"])
            return layers.batch_norm(x, mean, variance, *own, layer.epsilon)
        case Dropout(name=name):
            return layers.dropout(x, context.masks[name])
        case MaxPool():
            return windows.max_pool(x, layer.size, layer.stride, context.conventions.max_pool_within)
        case AveragePool():
            return windows.average_pool(x, layer.size, layer.stride)
        case GlobalAveragePool():
            return windows.global_average_pool(x)
        case ReLU():
            return layers.relu(x, context.conventions.relu_at_zero)
        case Flatten():
            return layers.flatten(x)
        case Residual():
            return _residual(layer, x, context)
        case Embedding(name=name):
            return sequences.embedding(x, weights[f"{name}.weight"])
        case LSTM(name=name):
            tensors = {part: weights[f"{name}.{part}"] for part in layer.weight_shapes()}
            activation = sequences.RECURRENT[layer.recurrent_activation]
            return sequences.lstm(x, tensors, activation, sequence=layer.sequence)
        case MeanOverTime():
            return sequences.mean_over_time(x)
        case _:
            assert_never(layer)


def _residual(block: Residual, x: Array, context: _Context) -> Output:
    body, body_backward = _sequence(block.body, x, context)
    shortcut, shortcut_backward = _sequence(block.shortcut, x, context)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        context.watch(LayerTensors(body, dy, 2 * body, 2 * dy, {}))
        dshortcut, shortcut_gradients = shortcut_backward(dy)
        dbody, body_gradients = body_backward(dy)
        return dbody + dshortcut, body_gradients | shortcut_gradients

    return body + shortcut, backward


def _running_statistics(
    layer: BatchNorm, n: int, mean: Array, variance: Array, context: _Context
) -> dict[str, Array]:
    """running <- (1 - momentum) running + momentum batch, from n values a channel."""
    if context.conventions.running_variance == "unbiased":
        variance = variance * n / (n - 1)
    batch = {f"{layer.name}.running_mean": mean, f"{layer.name}.running_variance": variance}
    return {
        name: (1 - layer.momentum) * context.weights[name] + layer.momentum * value
        for name, value in batch.items()
    }
