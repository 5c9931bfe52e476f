"""Operations of a layer and of a step, which Julia computes and times."""

from __future__ import annotations

from typing import Any

from polybench.engines.base import Array, TimedOperation, Weights
from polybench.engines.flux.interop import addresses, layers_toml
from polybench.engines.shared.arrays import as_input, is_tokens
from polybench.networks.layers import Operation
from polybench.networks.timed_layers import TimedLayer


def build_operations(
    julia: Any, trainer: Any, timed_layer: TimedLayer, weights: Weights, x: Array, dy: Array
) -> dict[Operation, TimedOperation]:
    """Return the operations of a layer; see `engines.base.Engine.build_layer_operations`.

    Args:
        julia: the package PolyBench.
        trainer: its trainer; `weights` have its element type.
        timed_layer: the layer.
        weights: C order, in the order of `timed_layer.tensor_shapes()`.
        x: its input.
        dy: the gradient of its output.
    """
    x, dy = (as_input(array, "float32") for array in (x, dy))
    names = tuple(gradient.operation for gradient in timed_layer.gradients())
    found = julia.build_layer_operations(
        trainer, layers_toml(timed_layer.layers), addresses(weights),
        x.ctypes.data, x.shape, dy.ctypes.data, dy.shape, names, is_tokens(x),
    )  # fmt: skip
    return time_operations(julia, found)


def time_operations(julia: Any, operations: Any) -> dict[Operation, TimedOperation]:
    """Wrap Julia's pairs (name, operation) as timers."""

    def timer(operation: Any) -> TimedOperation:
        return TimedOperation(lambda n: float(julia.seconds(operation, n)))

    return {str(name): timer(operation) for name, operation in operations}  # type: ignore[misc]
