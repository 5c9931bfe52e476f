"""Keras's LSTM, whose gates come in the canonical order, and whose one bias is that of the inputs.

`keras.layers.LSTM` takes cuDNN's fused kernel by itself where there is a GPU and the kernel computes the
same: the recurrent activation is "sigmoid" and the loop is not unrolled (`cudnn_ok`,
keras/src/backend/tensorflow/rnn.py). On the CPU TensorFlow's Keras has the loop only.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from keras import layers, ops, saving

from polybench.core.sequence_layers import LSTM, REVERSE
from polybench.engines.support.frameworks import no_such_layer

_OPTIONS = {"unrolled": {"unroll": True}, "nofuse": {"use_cudnn": False}}
"""What variants of an engine ask of `keras.layers.LSTM`."""

_ATTRIBUTES = {"weight": "kernel", "recurrent": "recurrent_kernel", "bias": "bias"}


def hard_sigmoid(x: Any) -> Any:
    """That of Keras 2; what Keras 3 has under this name is another one: x / 6 + 0.5."""
    return ops.clip(0.2 * x + 0.5, 0.0, 1.0)


# `Bidirectional` makes its layers anew from what they say of themselves, in which a function is a name:
# without one of its own it would come back as Keras's.
saving.register_keras_serializable(package="polybench")(hard_sigmoid)


def options_of(variants: Collection[str]) -> dict[str, Any]:
    """What `lstm` takes for these variants of an engine."""
    return {name: value for variant in variants for name, value in _OPTIONS.get(variant, {}).items()}


def lstm(layer: LSTM, name: str, more: Mapping[str, Any]) -> Any:
    """The layer, with `more` of Keras's own options.

    Raises:
        Unavailable: Keras's has no second bias.
    """
    if layer.biases == 2:
        raise no_such_layer("Keras", layer, "biases = 2")
    activation = hard_sigmoid if layer.recurrent_activation == "hard_sigmoid" else "sigmoid"
    options = {"return_sequences": layer.sequence, "recurrent_activation": activation, **more}
    if not layer.bidirectional:
        return layers.LSTM(layer.units, name=name, **options)
    # A layer inside of another one needs a name of its own.
    both = layers.Bidirectional(layers.LSTM(layer.units, name=f"{name}_cell", **options), name=name)
    if options.get("use_cudnn") is False:
        # Keras makes both anew, at first without this option, and believes that XLA cannot compile them.
        both.forward_layer.supports_jit = both.backward_layer.supports_jit = both.supports_jit = True
    return both


def variable(layer: Any, part: str) -> Any:
    """The variable of what `lstm` made for a canonical part."""
    if isinstance(layer, layers.Bidirectional):
        layer = layer.backward_layer if part.startswith(REVERSE) else layer.forward_layer
    return getattr(layer.cell, _ATTRIBUTES[part.removeprefix(REVERSE)])
