"""Operations of a layer and of a step in Keras, built separately for timing. Imports TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from polybench.engines.base import Weights
from polybench.engines.shared.keras_emitter import layer_program
from polybench.engines.shared.program import import_program
from polybench.engines.shared.timed_operations import OperationCall
from polybench.networks.layers import LSTM, BatchNorm, Dropout, MaxPool, Operation
from polybench.networks.timed_layers import TimedLayer

_GRADIENT_NEEDS_FORWARD = (BatchNorm, LSTM, MaxPool)
"""Layers whose gradient needs the forward pass in the same graph.

It uses intermediate results, or a faster kernel: oneDNN's gradient of max pooling takes a fifth of the time
of Eigen's."""


def layer_operations(
    timed_layer: TimedLayer,
    weights: Weights,
    x: Any,
    dy: Any,
    *,
    folder: Path | None,
    variants: Sequence[str],
    is_forward_pass: bool,
) -> dict[Operation, OperationCall]:
    """Build each operation of a layer as a separate graph function; a call overhead is subtracted from each.

    A whole step is a single call. If the step is eager, its operations are eager. The folder gets the layer's program.
    The input `x` and the gradient `dy` of the output are channels last. In bf16, layers get bf16 from the layer before
    them, and the first one float32.
    """
    x, dy = _in_compute_dtype(timed_layer, x, dy)
    program = import_program(
        layer_program([timed_layer.layer], timed_layer.input_shape, x.dtype.name, variants), folder
    )
    model = program.make_network()
    program.assign(model, {name: weights[name] for name in timed_layer.tensor_shapes()})
    relu = keras.layers.ReLU() if timed_layer.has_relu else None
    layer = partial(model, training=not is_forward_pass)

    def forward(x: Any) -> Any:
        z = layer(x)
        return relu(z) if relu else z

    eager = "eager" in variants
    make_call = _eager_call if eager else _graph_call
    calls: dict[Operation, OperationCall] = {"forward": make_call(forward, x)}
    if is_forward_pass:
        return calls
    dz = dy
    if relu:
        calls["relu gradient"] = _eager_gradient(relu, layer(x), dy) if eager else _relu_gradient(forward(x), dy)
        (dz,) = calls["relu gradient"].run()
    trained = [variable.value for variable in model.trainable_variables]
    for operation, wrt_input, wrt_weights in timed_layer.gradients():
        weights_to_watch = trained * wrt_weights
        if eager:
            calls[operation] = _eager_gradient(layer, x, dz, wrt_input=wrt_input, weights=weights_to_watch)
        elif timed_layer.is_relu:
            calls[operation] = _relu_gradient(layer(x), dz)
        elif isinstance(timed_layer.layer, Dropout):
            calls[operation] = _dropout_gradient(layer(tf.ones_like(x)) != 0, timed_layer.layer.rate, dz)
        else:
            call = _graph_gradient(layer, x, dz, wrt_input=wrt_input, weights=weights_to_watch)
            if isinstance(timed_layer.layer, _GRADIENT_NEEDS_FORWARD):
                call = call._replace(overhead=_graph_call(layer, x).run)
            calls[operation] = call
    return calls


def _in_compute_dtype(timed_layer: TimedLayer, x: Any, dy: Any) -> tuple[Any, Any]:
    dtype = keras.config.dtype_policy().compute_dtype
    return tf.cast(x, dtype) if timed_layer.needs_input_gradient else x, tf.cast(dy, dtype)


def step_operations(
    logits: Any, labels: Any, optimizer: Any, loss_function: Any, *, eager: bool
) -> dict[Operation, OperationCall]:
    """Build the operations of a step outside of layers; the update uses a small constant gradient."""
    variables = optimizer._trainable_variables
    gradients = [tf.fill(variable.shape, tf.cast(1e-3, variable.dtype)) for variable in variables]

    def loss(logits: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = loss_function(labels, logits)
        return value, tape.gradient(value, logits)

    def update(gradients: Any) -> None:
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    make_call = _eager_call if eager else _graph_call
    return {
        "loss": make_call(loss, logits, labels),
        "update": make_call(update, gradients),
        "call": OperationCall((lambda: None) if eager else _empty_function()),
    }


def _eager_call(function: Callable[..., Any], *arguments: Any) -> OperationCall:
    return OperationCall(lambda: function(*arguments))


def _graph_call(function: Callable[..., Any], *arguments: Any) -> OperationCall:
    """Build a graph that captures its arguments; passing one costs as much as a small layer."""
    return OperationCall(_concrete_function(lambda: function(*arguments)), _empty_function())


def _concrete_function(function: Callable[[], Any]) -> Callable[[], Any]:
    concrete: Callable[[], Any] = tf.function(function, autograph=False).get_concrete_function()
    return concrete


def _graph_gradient(
    forward: Callable[[Any], Any], x: Any, dy: Any, *, wrt_input: bool, weights: list[Any]
) -> OperationCall:
    """Build forward pass and gradient as one function; the graph prunes what the gradient does not need."""
    sources = [x] * wrt_input + weights

    def gradient() -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            y = forward(x)
        return tape.gradient(y, sources, dy)

    return _graph_call(gradient)


def _relu_gradient(y: Any, dy: Any) -> OperationCall:
    """Build the gradient of a ReLU as in a graph, from the output of the ReLU."""
    return _graph_call(lambda: [tf.raw_ops.ReluGrad(gradients=dy, features=y)])


def _dropout_gradient(mask: Any, rate: float, dy: Any) -> OperationCall:
    """Build the gradient of a dropout as in a graph, from its boolean mask."""
    return _graph_call(lambda: [tf.where(mask, dy, tf.zeros((), dy.dtype)) * (1 / (1 - rate))])


def _eager_gradient(
    forward: Callable[[Any], Any], x: Any, dy: Any, *, wrt_input: bool = True, weights: Sequence[Any] = ()
) -> OperationCall:
    """Build the gradient from a recorded forward pass, with an empty `tape.gradient` as overhead."""
    return OperationCall(_taped_gradient(forward, x, dy, [x] * wrt_input + [*weights]), _empty_gradient())


def _taped_gradient(forward: Callable[[Any], Any], x: Any, dy: Any, sources: list[Any]) -> Callable[[], Any]:
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(sources)
        y = forward(x)
    return lambda: tape.gradient(y, sources, dy)


@cache
def _empty_function() -> Callable[[], Any]:
    return _concrete_function(lambda: tf.zeros(()))


@cache
def _empty_gradient() -> Callable[[], Any]:
    one = tf.ones(1)
    return _taped_gradient(lambda x: 2 * x, one, one, [one])
