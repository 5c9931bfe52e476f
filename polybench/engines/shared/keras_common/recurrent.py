"""Keras's LSTM: its gates are in the canonical order, and its only bias is that of the inputs.

On a GPU, `keras.layers.LSTM` uses cuDNN's fused kernel if that computes the same: the recurrent activation is
"sigmoid" and the loop is not unrolled (`cudnn_ok`, keras/src/backend/tensorflow/rnn.py). On the CPU, Keras on
TensorFlow always uses a loop.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from keras import layers, ops, saving

from polybench.engines.shared.frameworks import unsupported_layer
from polybench.networks.layers import LSTM, REVERSE

_OPTIONS = {"unrolled": {"unroll": True}, "no_fusion": {"use_cudnn": False}}
"""Options of `keras.layers.LSTM` by the engine's variant."""

_ATTRIBUTES = {"weight": "kernel", "recurrent": "recurrent_kernel", "bias": "bias"}


def hard_sigmoid(x: Any) -> Any:
    """Hard sigmoid of Keras 2; Keras 3's function of this name is x / 6 + 0.5."""
    return ops.clip(0.2 * x + 0.5, 0.0, 1.0)


# `Bidirectional` recreates its layers from their configurations, which name a function. Without a registered
# name of its own, this function would be replaced by Keras's.
saving.register_keras_serializable(package="polybench")(hard_sigmoid)


def lstm_options(variants: Collection[str]) -> dict[str, Any]:
    """Options of `lstm` for these variants of an engine."""
    return {name: value for variant in variants for name, value in _OPTIONS.get(variant, {}).items()}


def lstm(layer: LSTM, name: str, extra_options: Mapping[str, Any]) -> Any:
    """Build the layer, with extra options of Keras.

    Raises:
        EngineUnavailable: the layer has two biases, which Keras does not support.
    """
    if layer.biases == 2:
        raise unsupported_layer("Keras", layer, "biases = 2")
    activation = hard_sigmoid if layer.recurrent_activation == "hard_sigmoid" else "sigmoid"
    options = {"return_sequences": layer.sequence, "recurrent_activation": activation, **extra_options}
    if not layer.bidirectional:
        return layers.LSTM(layer.units, name=name, **options)
    # An inner layer needs a name of its own.
    both = layers.Bidirectional(layers.LSTM(layer.units, name=f"{name}_cell", **options), name=name)
    if options.get("use_cudnn") is False:
        # Keras recreates both layers, first without this option, then assumes that XLA cannot compile them.
        both.forward_layer.supports_jit = both.backward_layer.supports_jit = both.supports_jit = True
    return both


def lstm_variable(layer: Any, tensor: str) -> Any:
    """Return the variable of a layer from `lstm` for a canonical tensor."""
    if isinstance(layer, layers.Bidirectional):
        layer = layer.backward_layer if tensor.startswith(REVERSE) else layer.forward_layer
    return getattr(layer.cell, _ATTRIBUTES[tensor.removeprefix(REVERSE)])
