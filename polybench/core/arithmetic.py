"""How much arithmetic a network is: the multiply-adds of its convolutions and dense layers.

As papers count them (He et al., 2015, section 3.3: https://arxiv.org/abs/1512.03385): what else there is,
such as activations, pooling and batch norm, takes time, but hardly a product.
"""

from __future__ import annotations

import math

from polybench.core.layers import Conv, Dense, Layer, Shape
from polybench.core.model import Model


def multiply_adds(layer: Layer, output: Shape) -> int:
    """Of one layer, forward, for one image; `output` is the shape that the layer puts out."""
    match layer:
        case Conv():
            return layer.inputs * layer.kernel**2 * math.prod(output)
        case Dense():
            return layer.inputs * layer.outputs
        case _:
            return 0


def forward_multiply_adds(model: Model) -> int:
    """Of a whole network, for one image."""
    return sum(multiply_adds(layer, output) for layer, output in model.activations())


def training_multiply_adds(model: Model) -> int:
    """Of a training step, for one image: forward, the gradients of weights and those of inputs.

    Each of the three has as many. The images themselves need no gradient, so the first layer has two.
    """
    each = [multiply_adds(layer, output) for layer, output in model.activations()]
    first = next(filter(None, each), 0)
    return 3 * sum(each) - first
