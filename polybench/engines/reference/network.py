"""Reference forward and backward pass through a whole network."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, assert_never

import msgspec
import numpy as np

from polybench.engines.base import Array, LayerTensors, Weights
from polybench.engines.job import NO_DEVIATIONS, NumericalConventions
from polybench.engines.reference import layers
from polybench.engines.reference import sequence_layers as sequences
from polybench.engines.reference.layers import Backward, Output
from polybench.engines.shared.batches import as_input
from polybench.networks import layers as spec
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
    rows: layers.Rows = None
    observe: LayerObserver = _ignore

    def store(self, x: Array) -> Array:
        """Return what a layer passes on."""
        return x.astype(np.float32).astype(np.float64) if self.conventions.stores_float32 else x


def loss_and_gradients(
    model: Model,
    weights: Weights,
    images: Array,
    labels: Array,
    conventions: NumericalConventions = NO_DEVIATIONS,
    masks: Weights | None = None,
    observe: LayerObserver = _ignore,
    *,
    softmax_twice: bool = False,
) -> Pass:
    """Compute the mean cross-entropy of a training batch and its gradients, in float64.

    Inputs are (batch, *model.input_shape), any float dtype, or integer tokens; labels (batch, *label_shape), int64.
    `masks` are the dropout masks by layer name; `observe` is called with the tensors of every layer. Without
    `observe`, images with equal values, label and masks are computed once. `softmax_twice` applies softmax before
    the cross-entropy, which is a common mistake.
    """
    masks = masks or {}
    rows: layers.Rows = None
    if observe is _ignore:
        different, rows = _find_equal(images, labels, *masks.values())
        images, labels = images[different], labels[different]
        masks = {name: mask[different] for name, mask in masks.items()}
    context = _Context(weights, conventions, masks, {}, rows, observe)
    logits, backward = _sequence(model.layers, as_input(images, "float64"), context)
    cross_entropy = layers.cross_entropy_of_softmax if softmax_twice else layers.cross_entropy
    loss, dlogits = cross_entropy(logits, labels, rows, model.label_smoothing)
    _, gradients = backward(dlogits)
    return Pass(loss, {name: gradients[name] for name in model.weight_shapes()}, context.state)


def _find_equal(*arrays: Array) -> tuple[list[int], Array]:
    """Return the first of all equal rows, and for every row the position of its equal among these."""
    positions: dict[bytes, int] = {}
    different: list[int] = []
    numbers = []
    for image in range(len(arrays[0])):
        number = positions.setdefault(b"".join(array[image].tobytes() for array in arrays), len(positions))
        if number == len(different):
            different.append(image)
        numbers.append(number)
    return different, np.array(numbers)


def forward(layer: spec.Layer, x: Array, weights: Weights) -> Array:
    """Evaluate a layer that behaves the same in training and inference."""
    y, _ = _layer(layer, x, _Context(weights, NO_DEVIATIONS, {}, {}))
    return y


def _sequence(sequence: Sequence[spec.Layer], x: Array, context: _Context) -> Output:
    """Evaluate layers in order; gradients have full names, `layer_name.tensor`."""
    backwards = []
    for layer in sequence:
        y, backward = _layer(layer, x, context)
        if not isinstance(layer, spec.Residual):
            backward = _with_observer(x, y, backward, context.observe)
        backwards.append((layer, backward))
        x = context.store(y)

    def sequence_backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        gradients: dict[str, Array] = {}
        for layer, backward in reversed(backwards):
            dy, layer_gradients = backward(context.store(dy))
            gradients = add_gradients(
                gradients, {_full_name(layer, key): value for key, value in layer_gradients.items()}
            )
        return dy, gradients

    return x, sequence_backward


def _full_name(layer: spec.Layer, key: str) -> str:
    """Return the name of a layer's tensor in the network; those of a residual block have it already."""
    if isinstance(layer, spec.Dense) and key == "weight":
        return layer.weight_name
    return f"{layer.name}.{key}" if isinstance(layer, spec.Named) else key


def add_gradients(first: Mapping[str, Array], second: Mapping[str, Array]) -> dict[str, Array]:
    """Merge gradients by name; a weight that two layers share gets the sum."""
    shared = {name: first[name] + value for name, value in second.items() if name in first}
    return {**first, **second, **shared}


def _with_observer(x: Array, y: Array, backward: Backward, observe: LayerObserver) -> Backward:
    def observed_backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dx, gradients = backward(dy)
        observe(LayerTensors(x, dy, y, dx, gradients))
        return dx, gradients

    return observed_backward


def _layer(layer: spec.Layer, x: Array, context: _Context) -> Output:  # noqa: C901, PLR0911, PLR0912 - a line for each kind
    weights = context.weights
    if context.conventions.operand_bits and isinstance(layer, spec.Conv | spec.Dense):
        return _with_rounded_operands(layer, x, context)
    match layer:
        case spec.Conv(name=name):
            bias = weights[f"{name}.bias"] if layer.bias else None
            return layers.conv(x, weights[f"{name}.weight"], bias, layer.stride, layer.pads, layer.groups)
        case spec.Dense(name=name):
            return layers.dense(x, weights[layer.weight_name], weights[f"{name}.bias"] if layer.bias else None)
        case spec.LayerNorm(name=name):
            bias = weights[f"{name}.bias"] if layer.bias else None
            return layers.layer_norm(x, weights[f"{name}.weight"], bias, layer.epsilon)
        case spec.GroupNorm(name=name):
            weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
            return layers.group_norm(x, weight, bias, layer.groups, layer.epsilon)
        case spec.BatchNorm(name=name):
            rows = context.rows
            mean, variance = layers.batch_statistics(x, context.conventions.batch_norm_sums, rows)
            n = layers.values_per_channel(x, rows)
            context.state.update(_running_statistics(layer, n, mean, variance, context))
            weight, bias = weights[f"{name}.weight"], weights[f"{name}.bias"]
            return layers.batch_norm(x, mean, variance, weight, bias, layer.epsilon, rows)
        case spec.Dropout(name=name):
            return layers.dropout(x, context.masks[name])
        case spec.MaxPool():
            return layers.max_pool(x, layer.size, layer.stride, context.conventions, layer.pads)
        case spec.AveragePool():
            counts = layer.count_padding
            return layers.average_pool(x, layer.size, layer.stride, layer.pads, count_padding=counts)
        case spec.GlobalAveragePool():
            return layers.global_average_pool(x)
        case spec.ReLU():
            return layers.relu(x, context.conventions.relu_at_zero)
        case spec.ReLU6():
            return layers.relu6(x)
        case spec.GELU():
            return layers.gelu(x) if layer.approximate == "none" else layers.gelu_tanh(x)
        case spec.SiLU():
            return layers.silu(x)
        case spec.Flatten():
            return layers.flatten(x)
        case spec.Residual():
            return _residual(layer, x, context)
        case spec.Embedding(name=name):
            return sequences.embedding(x, weights[f"{name}.weight"])
        case spec.LSTM(name=name):
            tensors = {tensor: weights[f"{name}.{tensor}"] for tensor in layer.weight_shapes()}
            activation = sequences.RECURRENT[layer.recurrent_activation]
            return sequences.lstm(x, tensors, activation, sequence=layer.sequence)
        case spec.MeanOverTime():
            return sequences.mean_over_time(x)
        case spec.Attention(name=name):
            tensors = {tensor: weights[f"{name}.{tensor}"] for tensor in layer.weight_shapes()}
            return sequences.attention(x, tensors, layer.heads, causal=layer.causal)
        case spec.Positions(name=name):
            return sequences.positions(x, weights[f"{name}.weight"])
        case spec.Patches(name=name):
            return sequences.patches(x, weights[f"{name}.weight"], weights[f"{name}.bias"] if layer.bias else None)
        case spec.ClassToken(name=name):
            return sequences.class_token(x, weights[f"{name}.token"])
        case spec.FirstPosition():
            return sequences.first_position(x)
        case _:
            assert_never(layer)


def _with_rounded_operands(layer: spec.Conv | spec.Dense, x: Array, context: _Context) -> Output:
    """Evaluate a layer whose products have rounded operands, forward and backward; the bias is exact."""
    bits = context.conventions.operand_bits
    name = layer.weight_name if isinstance(layer, spec.Dense) else f"{layer.name}.weight"
    weights = {**context.weights, name: layers.round_bits(context.weights[name], bits)}
    exact = context._replace(weights=weights, conventions=msgspec.structs.replace(context.conventions, operand_bits=0))
    y, backward = _layer(layer, layers.round_bits(x, bits), exact)

    def rounded_backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        dx, gradients = backward(layers.round_bits(dy, bits))
        axes = (0, 2, 3) if isinstance(layer, spec.Conv) else tuple(range(dy.ndim - 1))
        return dx, gradients | ({"bias": dy.sum(axis=axes)} if layer.bias else {})

    return y, rounded_backward


def _residual(block: spec.Residual, x: Array, context: _Context) -> Output:
    body, body_backward = _sequence(block.body, x, context)
    shortcut, shortcut_backward = _sequence(block.shortcut, x, context)

    def backward(dy: Array) -> tuple[Array, dict[str, Array]]:
        context.observe(LayerTensors(body, dy, 2 * body, 2 * dy, {}))
        dshortcut, shortcut_gradients = shortcut_backward(dy)
        dbody, body_gradients = body_backward(dy)
        return dbody + dshortcut, add_gradients(body_gradients, shortcut_gradients)

    return body + shortcut, backward


def _running_statistics(
    layer: spec.BatchNorm, n: int, mean: Array, variance: Array, context: _Context
) -> dict[str, Array]:
    """Compute (1 - momentum) running + momentum batch, with n values per channel in the batch."""
    if context.conventions.running_variance == "unbiased":
        variance = variance * n / (n - 1)
    batch = {f"{layer.name}.running_mean": mean, f"{layer.name}.running_variance": variance}
    return {
        name: (1 - layer.momentum) * context.weights[name] + layer.momentum * value for name, value in batch.items()
    }


def logits(model: Model, weights: Weights, images: Array) -> Array:
    """Compute logits, float64, of inputs (batch, *model.input_shape): floats or tokens."""
    return _infer(model.layers, as_input(images, "float64"), weights)


def _infer(layers: Sequence[spec.Layer], x: Array, weights: Weights) -> Array:
    for layer in layers:
        match layer:
            case spec.BatchNorm():
                x = _batch_norm(layer, x, weights)
            case spec.Dropout():
                pass
            case spec.Residual():
                x = _infer(layer.body, x, weights) + _infer(layer.shortcut, x, weights)
            case _:
                x = forward(layer, x, weights)
    return x


def _batch_norm(layer: spec.BatchNorm, x: Array, weights: Weights) -> Array:
    scale, shift, mean, variance = (
        weights[f"{layer.name}.{tensor}"].reshape(-1, *[1] * (x.ndim - 2))
        for tensor in ("weight", "bias", "running_mean", "running_variance")
    )
    y: Array = scale * (x - mean) / np.sqrt(variance + layer.epsilon) + shift
    return y
