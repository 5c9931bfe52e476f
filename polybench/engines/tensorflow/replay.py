"""One layer in Keras: its forward pass and each of its gradients, alone. Imported where TensorFlow is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import keras
import tensorflow as tf

from polybench.core.document.layers import Part
from polybench.core.layers import Conv, Dense
from polybench.core.pieces import Piece
from polybench.engines.base import Weights
from polybench.engines.support.keras.layers import layers_alone
from polybench.engines.support.keras.layout import to_keras
from polybench.engines.support.replay import Call


def calls(piece: Piece, weights: Weights, x: Any, dy: Any, *, eager: bool) -> dict[Part, Call]:
    """The parts of a layer, each a graph's function of its own, less a call of one: a step is a single call.

    Where the step is eager, so are its parts.

    Args:
        piece: the layer.
        weights: all of its tensors, canonical.
        x: its input, channels last, on its device.
        dy: the gradient of its output.
        eager: without a graph.
    """
    made = layers_alone([piece.layer], piece.input_shape)
    for name, variable in made.variables(piece.tensor_shapes()).items():
        variable.assign(to_keras(weights[name], None))
    layer = made.model
    relu = keras.layers.ReLU() if piece.activated else None

    def forward(x: Any) -> Any:
        z = layer(x, training=True)
        return relu(z) if relu else z

    found: dict[Part, Call] = {"forward": Call(lambda: forward(x)) if eager else _function(forward, x)}
    dz = dy
    if relu:
        z = layer(x, training=True)
        found["activation"] = _kept(relu, z, dy, [z], eager=eager)
        (dz,) = found["activation"].do()
    trained = [variable.value for variable in layer.trainable_variables]
    for part, data, own in piece.gradients():
        sources = [x] * data + trained * own
        # A convolution's gradient takes nothing that its forward pass computes, so TensorFlow cuts that out
        # of the gradient's function. What others take would be computed anew there.
        trains = partial(layer, training=True)
        if isinstance(piece.layer, Conv | Dense) and not eager:
            found[part] = _pruned(trains, x, dz, sources)
        else:
            found[part] = _kept(trains, x, dz, sources, eager=eager)
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

    if eager:
        return {
            "loss": Call(lambda: loss(logits, labels)),
            "update": Call(lambda: update(gradients)),
            "call": Call(lambda: None),
        }
    return {
        "loss": _function(loss, logits, labels),
        "update": _function(update, gradients),
        "call": Call(_empty_function()),
    }


def _function(function: Callable[..., Any], *arguments: Any) -> Call:
    compiled = _compiled(function, *arguments)
    return Call(lambda: compiled(*arguments), _empty_function())


def _compiled(function: Callable[..., Any], *arguments: Any) -> Any:
    return tf.function(function, autograph=False).get_concrete_function(*arguments)


def _pruned(forward: Callable[[Any], Any], x: Any, dy: Any, sources: list[Any]) -> Call:
    """The gradient as one function, forward pass included, of which only what it takes is computed."""
    variables = [source for source in sources if source is not x]

    def gradient(x: Any, dy: Any) -> Any:
        wanted = [x] * (len(sources) > len(variables)) + variables
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(wanted)
            y = forward(x)
        return tape.gradient(y, wanted, dy)

    return _function(gradient, x, dy)


def _kept(forward: Callable[[Any], Any], x: Any, dy: Any, sources: list[Any], *, eager: bool) -> Call:
    """The gradient from what a forward pass kept: TensorFlow makes a function of it that runs alone."""
    return Call(_behind(forward if eager else _compiled(forward, x), x, dy, sources), _empty_gradient(eager))


def _behind(forward: Callable[[Any], Any], x: Any, dy: Any, sources: list[Any]) -> Callable[[], Any]:
    with tf.GradientTape(persistent=True, watch_accessed_variables=False) as tape:
        tape.watch(sources)
        y = forward(x)
    return lambda: tape.gradient(y, sources, dy)


@cache
def _empty_function() -> Callable[[], Any]:
    one = tf.ones(1)
    nothing = _compiled(lambda *_: tf.zeros(()), one, one)
    return lambda: nothing(one, one)


@cache
def _empty_gradient(eager: bool) -> Callable[[], Any]:
    one = tf.ones(1)

    def twice(x: Any) -> Any:
        return 2 * x

    return _behind(twice if eager else _compiled(twice, one), one, one, [one])
