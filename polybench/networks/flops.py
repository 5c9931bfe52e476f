"""Number of multiply-accumulate operations (MACs) of a network's convolutions, dense layers and LSTMs.

Counted as papers do (He et al., 2015, section 3.3: https://arxiv.org/abs/1512.03385). Activations, pooling
and batch norm take time but hardly multiply, so they count as 0.
"""

from __future__ import annotations

import math

from polybench.networks.layers import LSTM, Conv, Dense, Layer, Shape, layer_shapes
from polybench.networks.model import Model


def macs(layer: Layer, input_shape: Shape, output_shape: Shape) -> int:
    """Return the MACs of one layer's forward pass for one image or sequence, given its input and output
    shapes.
    """
    match layer:
        case Conv():
            return layer.inputs * layer.kernel**2 * math.prod(output_shape)
        case Dense():
            return layer.inputs * layer.outputs
        case LSTM():
            return sum(layer.macs(input_shape[0]))
        case _:
            return 0


def forward_macs(model: Model) -> int:
    """Return the MACs of a network's forward pass for one image or sequence."""
    return sum(macs(*one) for one in layer_shapes(model.layers, model.input_shape))


def training_macs(model: Model) -> int:
    """Return the MACs of a training step per image or sequence: forward, weight gradients and input
    gradients.

    Each of the three passes has the same number. Images need no gradient, so the first layer with weights has
    only two of the passes.
    """
    layers = list(layer_shapes(model.layers, model.input_shape))
    first = next((one for one in layers if one[0].weight_shapes()), None)
    return 3 * forward_macs(model) - (_input_macs(*first) if first else 0)


def _input_macs(layer: Layer, input_shape: Shape, output_shape: Shape) -> int:
    """Return the MACs that use the layer's input, without those on its own recurrent output."""
    return layer.macs(input_shape[0])[0] if isinstance(layer, LSTM) else macs(layer, input_shape, output_shape)
