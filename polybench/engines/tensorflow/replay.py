"""One layer in Keras: its forward pass and each of its gradients, alone. Imported where TensorFlow is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any

import keras
import tensorflow as tf

from polybench.core.document.layers import Part
from polybench.core.layers import BatchNorm, Dropout, MaxPool, ReLU
from polybench.core.pieces import Piece
from polybench.core.sequence_layers import LSTM
from polybench.engines.base import Weights
from polybench.engines.support.keras.layers import layers_alone
from polybench.engines.support.keras.layout import tables, to_keras
from polybench.engines.support.replay import Call

_TAKES_ITS_FORWARD_PASS = (BatchNorm, LSTM, MaxPool)
"""Layers whose gradient takes what their forward pass computes besides its output, or is another kernel where
that pass is not in the same graph: oneDNN's gradient of max pooling, a fifth of the time of Eigen's."""


def calls(
    piece: Piece, weights: Weights, x: Any, dy: Any, *, eager: bool, lstm_options: Mapping[str, Any]
) -> dict[Part, Call]:
    """The parts of a layer, each a graph's function of its own, less a call of one: a step is a single call.

    Where the step is eager, so are its parts.

    Args:
        piece: the layer.
        weights: all of its tensors, canonical.
        x: its input, channels last, on its device.
        dy: the gradient of its output.
        eager: without a graph.
        lstm_options: as of the whole network.
    """
    made = layers_alone([piece.layer], piece.input_shape, lstm_options)
    rows = tables([piece.layer])
    for name, variable in made.variables(piece.tensor_shapes()).items():
        variable.assign(to_keras(weights[name], None, table=name in rows))
    relu = keras.layers.ReLU() if piece.activated else None
    alone = partial(made.model, training=True)

    def forward(x: Any) -> Any:
        z = alone(x)
        return relu(z) if relu else z

    called = _called if eager else _function
    found: dict[Part, Call] = {"forward": called(forward, x)}
    dz = dy
    if relu:
        found["activation"] = _eager_gradient(relu, alone(x), dy) if eager else _of_relu(forward(x), dy)
        (dz,) = found["activation"].do()
    trained = [variable.value for variable in made.model.trainable_variables]
    for part, data, own in piece.gradients():
        if eager:
            found[part] = _eager_gradient(alone, x, dz, data=data, weights=trained * own)
        elif isinstance(piece.layer, ReLU):
            found[part] = _of_relu(alone(x), dz)
        elif isinstance(piece.layer, Dropout):
            found[part] = _of_dropout(alone(tf.ones_like(x)) != 0, piece.layer.rate, dz)
        else:
            found[part] = _gradient(alone, x, dz, data=data, weights=trained * own)
            if isinstance(piece.layer, _TAKES_ITS_FORWARD_PASS):
                found[part] = found[part]._replace(empty=_function(alone, x).do)
    return found


def step_calls(
    logits: Any, labels: Any, optimizer: Any, loss_function: Any, *, eager: bool
) -> dict[Part, Call]:
    """The parts of a step that belong to no layer; weights are updated with a small gradient.

    Args:
        logits: of a batch.
        labels: of that batch.
        optimizer: Keras's, built.
        loss_function: of labels and logits.
        eager: without a graph.
    """
    variables = optimizer._trainable_variables
    gradients = [tf.fill(variable.shape, tf.cast(1e-3, variable.dtype)) for variable in variables]

    def loss(logits: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = loss_function(labels, logits)
        return value, tape.gradient(value, logits)

    def update(gradients: Any) -> None:
        optimizer.apply_gradients(zip(gradients, variables, strict=True))

    called = _called if eager else _function
    return {
        "loss": called(loss, logits, labels),
        "update": called(update, gradients),
        "call": Call((lambda: None) if eager else _empty_function()),
    }


def _called(function: Callable[..., Any], *arguments: Any) -> Call:
    return Call(lambda: function(*arguments))


def _function(function: Callable[..., Any], *arguments: Any) -> Call:
    """Its tensors are captured: each that is handed over costs as much as a small layer."""
    return Call(_compiled(lambda: function(*arguments)), _empty_function())


def _compiled(function: Callable[[], Any]) -> Callable[[], Any]:
    called: Callable[[], Any] = tf.function(function, autograph=False).get_concrete_function()
    return called


def _gradient(forward: Callable[[Any], Any], x: Any, dy: Any, *, data: bool, weights: list[Any]) -> Call:
    """As one function, forward pass included, of which only what the gradient takes is computed."""
    sources = [x] * data + weights

    def gradient() -> Any:
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(sources)
            y = forward(x)
        return tape.gradient(y, sources, dy)

    return _function(gradient)


def _of_relu(y: Any, dy: Any) -> Call:
    """What the gradient of a ReLU is in a graph; it takes no more than its output."""
    return _function(lambda: [tf.raw_ops.ReluGrad(gradients=dy, features=y)])


def _of_dropout(kept: Any, rate: float, dy: Any) -> Call:
    """What the gradient of a dropout is in a graph: it takes which values were kept."""
    return _function(lambda: [tf.where(kept, dy, tf.zeros((), dy.dtype)) * (1 / (1 - rate))])


def _eager_gradient(
    forward: Callable[[Any], Any], x: Any, dy: Any, *, data: bool = True, weights: Sequence[Any] = ()
) -> Call:
    """From what a forward pass kept, less an empty `tape.gradient`."""
    return Call(_behind(forward, x, dy, [x] * data + [*weights]), _empty_gradient())


def _behind(forward: Callable[[Any], Any], x: Any, dy: Any, sources: list[Any]) -> Callable[[], Any]:
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(sources)
        y = forward(x)
    return lambda: tape.gradient(y, sources, dy)


@cache
def _empty_function() -> Callable[[], Any]:
    return _compiled(lambda: tf.zeros(()))


@cache
def _empty_gradient() -> Callable[[], Any]:
    one = tf.ones(1)
    return _behind(lambda x: 2 * x, one, one, [one])
