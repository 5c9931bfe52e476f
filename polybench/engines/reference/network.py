"""Reference forward and backward pass through a whole network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, assert_never

from polybench.engines.base import Array, LayerTensors, Weights
from polybench.engines.job import NO_DEVIATIONS, NumericalConventions
from polybench.engines.reference import conv_pool, layers, sequences
from polybench.engines.reference.layers import Backward, Output
from polybench.engines.shared.arrays import as_input
from polybench.networks.layers import (
    LSTM,
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Dropout,
    Embedding,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    MeanOverTime,
    ReLU,
    Residual,
)
from polybench.networks.model import Model


class Pass(NamedTuple):
    """Results for a batch: mean loss, gradients of all weights, and new running statistics."""

    loss: float
    gradients: Mapping[str, Array]
    state: Mapping[str, Array]


LayerObserver = Callable[[LayerTensors], None]
"""Function called with each layer's tensors in the backward pass, the last of `activations` first.

A residual block is reported as x + x with x the output of its body.
"""


def _ignore(tensors: LayerTensors) -> None:
    pass


class _Context(NamedTuple):
    """Arguments of layers other than their input; `state` collects the new running statistics."""

    weights: Weights
    conventions: NumericalConventions
    masks: Weights
    state: dict[str, Array]
    observe: LayerObserver = _ignore


def loss_and_gradients(
    model: Model,
    weights: Weights,
    images: Array,
    labels: Array,
    conventions: NumericalConventions = NO_DEVIATIONS,
    masks: Weights | None = None,
    observe: LayerObserver = _ignore,
) -> Pass:
    """Compute the mean cross-entropy of a training batch and its gradients, in float64.

    Args:
        model: network to evaluate.
        weights: all tensors of `model.tensor_shapes()`, canonical layout, float64.
        images: (batch, *model.input_shape), any float dtype, or integer tokens.
        labels: (batch,), int64.
        conventions: rules of max-pool gradients, ReLU and batch norm.
        masks: dropout masks by layer name; see `dropout_masks`.
        observe: function called with the tensors of every layer.
    """
    context = _Context(weights, conventions, masks or {}, {}, observe)
    logits, backward = _sequence(model.layers, as_input(images, "float64"), context)
    loss, dlogits = layers.cross_entropy(logits, labels)
    _, gradients = backward(dlogits)
    return Pass(loss, {name: gradients[name] for name in model.weight_shapes()}, context.state)


def forward(layer: Layer, x: Array, weights: Weights) -> Array:
    """Evaluate a layer that behaves the same in training and inference."""
    y, _ = _layer(layer, x, _Context(weights, NO_DEVIATIONS, {}, {}))
    return y


def _sequence(sequence: Sequence[Layer], x: Array, context: _Context) -> Output:
    """Evaluate layers in order; gradients have full names, `layer_name.tensor`."""
    backwards = []
    for layer in sequence:
        y, backward = _layer(layer, x, context)
        if not isinstance(layer, Residual):
            backward = _with_observer(x, y, backward, context.observe)
        backwards.append((getattr(layer, "name", ""), backward))
        x = y

    def sequence_backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        gradients: dict[str, Array] = {}
        for name, backward in reversed(backwards):
            dy, layer_gradients = backward(dy)
            gradients |= {f"{name}.{key}" if name else key: value for key, value in layer_gradients.items()}
        return dy, gradients

    return x, sequence_backward


def _with_observer(x: Array, y: Array, backward: Backward, observe: LayerObserver) -> Backward:
    def observed_backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dx, gradients = backward(dy)
        observe(LayerTensors(x, dy, y, dx, gradients))
        return dx, gradients

    return observed_backward


def _layer(layer: Layer, x: Array, context: _Context) -> Output:  # noqa: C901, PLR0911, PLR0912 - a line for each kind
    weights = context.weights
    match layer:
        case Conv(name=name):
            bias = weights[f"{name}.bias"] if layer.bias else None
            return conv_pool.conv(x, weights[f"{name}.weight"], bias, layer.stride, layer.pad)
        case Dense(name=name):
            return layers.dense(x, weights[f"{name}.weight"], weights[f"{name}.bias"])
        case BatchNorm(name=name):
            mean, variance = layers.batch_statistics(x, context.conventions.batch_norm_sums)
            context.state.update(_running_statistics(layer, x.size // len(mean), mean, variance, context))
            weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
            return layers.batch_norm(x, mean, variance, weight, bias, layer.epsilon)
        case Dropout(name=name):
            return layers.dropout(x, context.masks[name])
        case MaxPool():
            return conv_pool.max_pool(x, layer.size, layer.stride, context.conventions.max_pool_within)
        case AveragePool():
            return conv_pool.average_pool(x, layer.size, layer.stride)
        case GlobalAveragePool():
            return conv_pool.global_average_pool(x)
        case ReLU():
            return layers.relu(x, context.conventions.relu_at_zero)
        case Flatten():
            return layers.flatten(x)
        case Residual():
            return _residual(layer, x, context)
        case Embedding(name=name):
            return sequences.embedding(x, weights[f"{name}.weight"])
        case LSTM(name=name):
            tensors = {tensor: weights[f"{name}.{tensor}"] for tensor in layer.weight_shapes()}
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
        context.observe(LayerTensors(body, dy, 2 * body, 2 * dy, {}))
        dshortcut, shortcut_gradients = shortcut_backward(dy)
        dbody, body_gradients = body_backward(dy)
        return dbody + dshortcut, body_gradients | shortcut_gradients

    return body + shortcut, backward


def _running_statistics(layer: BatchNorm, n: int, mean: Array, variance: Array, context: _Context) -> dict[str, Array]:
    """Compute (1 - momentum) running + momentum batch, with n values per channel in the batch."""
    if context.conventions.running_variance == "unbiased":
        variance = variance * n / (n - 1)
    batch = {f"{layer.name}.running_mean": mean, f"{layer.name}.running_variance": variance}
    return {
        name: (1 - layer.momentum) * context.weights[name] + layer.momentum * value for name, value in batch.items()
    }
