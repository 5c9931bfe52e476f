"""How much arithmetic a network is: the multiply-adds of its convolutions, dense layers and LSTMs.

As papers count them (He et al., 2015, section 3.3: https://arxiv.org/abs/1512.03385): what else there is,
such as activations, pooling and batch norm, takes time, but hardly a product.
"""

from __future__ import annotations

import math

from polybench.core.layer_base import Shape
from polybench.core.layers import Conv, Dense, Layer, passes
from polybench.core.model import Model
from polybench.core.sequence_layers import LSTM


def multiply_adds(layer: Layer, before: Shape, after: Shape) -> int:
    """Of one layer, forward, for one image or sequence, with the shapes that go in and come out."""
    match layer:
        case Conv():
            return layer.inputs * layer.kernel**2 * math.prod(after)
        case Dense():
            return layer.inputs * layer.outputs
        case LSTM():
            return sum(layer.multiply_adds(before[0]))
        case _:
            return 0


def forward_multiply_adds(model: Model) -> int:
    """Of a whole network, for one image or sequence."""
    return sum(multiply_adds(*one) for one in passes(model.layers, model.input_shape))


def training_multiply_adds(model: Model) -> int:
    """Of a training step, for one image or sequence: forward, the gradients of weights and those of inputs.

    Each of the three has as many. The images themselves need no gradient, so what the first layer with
    weights does with them has two.
    """
    through = list(passes(model.layers, model.input_shape))
    first = next((one for one in through if one[0].weight_shapes()), None)
    return 3 * forward_multiply_adds(model) - (_of_input(*first) if first else 0)


def _of_input(layer: Layer, before: Shape, after: Shape) -> int:
    """Those that take the layer's input, and not an output of its own."""
    return (
        layer.multiply_adds(before[0])[0] if isinstance(layer, LSTM) else multiply_adds(layer, before, after)
    )
