"""A network as the program of an engine that runs what polybench prints, with the weights beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from polybench.engines.flux import emitter as flux_emitter
from polybench.engines.jax import emitter as jax_emitter
from polybench.engines.job import Job
from polybench.engines.keras import emitter as keras_emitter
from polybench.engines.tf import emitter as tf_emitter
from polybench.engines.torch import emitter as torch_emitter
from polybench.errors import BadInput, EngineUnavailable
from polybench.networks.model import Model
from polybench.schema.options import Workload
from polybench.scripts.network_code import Code


def torch(model: Model, weights: Mapping[str, Any]) -> Code:
    """Return the program of PyTorch; all weights have the canonical names and layout."""
    return _code(torch_emitter.emit_network, model, weights)


def tf(model: Model, weights: Mapping[str, Any]) -> Code:
    """Return the program of TensorFlow."""
    return _code(tf_emitter.emit_network, model, weights)


def keras(model: Model, weights: Mapping[str, Any]) -> Code:
    """Return the program of Keras on any backend."""
    return _code(keras_emitter.emit_network, model, weights)


def jax(model: Model, weights: Mapping[str, Any]) -> Code:
    """Return the program of JAX."""
    return _code(jax_emitter.emit_network, model, weights)


def flux(model: Model, weights: Mapping[str, Any]) -> Code:
    """Return the program of Flux."""
    return _code(flux_emitter.emit_network, model, weights)


def _code(emit_network: Callable[[Job], str], model: Model, weights: Mapping[str, Any]) -> Code:
    workload = Workload(model.name, "", model.batch_size, model.optimizer, "fp32", 1)
    try:
        return Code("", emit_network(Job(model, workload, "cpu", "float32")), weights)
    except EngineUnavailable as error:
        raise BadInput(error.reason) from error
