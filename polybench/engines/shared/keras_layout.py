"""What differs if channels are last, as in Keras, instead of first, as in canonical tensors; imports no Keras."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from polybench.engines.base import Array
from polybench.engines.shared.frameworks import unsupported_layer
from polybench.networks.layers import Flatten, Layer, Named, Residual, Shape
from polybench.networks.model import Model


def flattened_shapes(model: Model) -> dict[str, Shape]:
    """Find tensors indexed by flattened features, which Keras orders differently.

    Return (channels, height, width) before the flatten, by the name of the tensor or of the dropout layer. The first
    dense layer after a flatten restores the common order. Raises EngineUnavailable if a residual block adds features of
    different orders.
    """
    return find_flattened(model.layers, model.input_shape)


def find_flattened(layers: Iterable[Layer], shape: Shape) -> dict[str, Shape]:
    """Find the same in layers for inputs of `shape`."""
    return dict(_AxisOrders().visit(layers, shape))


class _AxisOrders:
    """Visitor of layers that tracks the order of the features.

    `flattened` is the shape before the flatten if the current features are in flattened order.
    """

    flattened: Shape | None = None

    def visit(self, layers: Iterable[Layer], shape: Shape) -> Iterator[tuple[str, Shape]]:
        for layer in layers:
            if isinstance(layer, Residual):
                yield from self._visit_block(layer, shape)
            elif isinstance(layer, Flatten) and len(shape) == 3:
                self.flattened = shape
            elif self.flattened:
                yield from ((name, self.flattened) for name in _tensors_by_feature(layer))
                if layer.has_product:
                    self.flattened = None
            shape = layer.output_shape(shape)

    def _visit_block(self, block: Residual, shape: Shape) -> Iterator[tuple[str, Shape]]:
        before = self.flattened
        yield from self.visit(block.body, shape)
        body, self.flattened = self.flattened, before
        yield from self.visit(block.shortcut, shape)
        if self.flattened != body:
            raise unsupported_layer("Keras", block, "a body and a shortcut that flatten differently")


def _tensors_by_feature(layer: Layer) -> Iterable[str]:
    """Names of the layer's tensors that have one entry per input feature."""
    if not isinstance(layer, Named):
        return ()
    if layer.is_random:
        return (layer.name,)
    tensors = [*layer.weight_shapes(), *layer.state_shapes()] if layer.is_norm else ["weight"] * layer.has_product
    return (f"{layer.name}.{tensor}" for tensor in tensors)


def batch_to_keras(value: Array, flattened: Shape | None = None) -> Array:
    """Convert images (batch, channels, height, width), and features flattened from this shape, to channels last.

    Sequences of tokens or features are unchanged.
    """
    if value.ndim == 4:
        return value.transpose(0, 2, 3, 1)
    return value.reshape(-1, *flattened).transpose(0, 2, 3, 1).reshape(value.shape) if flattened else value
