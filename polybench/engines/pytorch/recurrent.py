"""`nn.LSTM` as PyTorch's users take it: the batch first, one call for all times and both directions.

It imports torch, so it is imported late. PyTorch's gates come in the canonical order. It has two biases, and
no way to have one: where the network has one, the second is 0 and is not trained, which computes the same.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from polybench.core.sequence_layers import LSTM, REVERSE
from polybench.engines.support.frameworks import no_such_layer

_ATTRIBUTES = {
    "weight": "weight_ih_l0",
    "recurrent": "weight_hh_l0",
    "bias": "bias_ih_l0",
    "recurrent_bias": "bias_hh_l0",
}


class Recurrent(nn.LSTM):  # type: ignore[misc]
    """An `nn.LSTM` that puts out its outputs or, as the rest of a `Sequential` wants it, the last ones."""

    def __init__(self, layer: LSTM) -> None:
        super().__init__(layer.inputs, layer.units, batch_first=True, bidirectional=layer.bidirectional)
        self.sequence = layer.sequence
        if layer.biases == 1:
            for direction in layer.directions:
                bias = getattr(self, attribute(f"{direction}recurrent_bias"))
                torch.nn.init.zeros_(bias).requires_grad_(False)

    def forward(self, x: Any) -> Any:
        outputs, (last, _) = super().forward(x)
        if self.sequence:
            return outputs
        # (directions, batch, units). The last output of the second direction stands at the first time.
        return last[0] if len(last) == 1 else torch.cat([last[0], last[1]], dim=1)


def recurrent(layer: LSTM) -> Recurrent:
    """The layer's module.

    Raises:
        Unavailable: `nn.LSTM` has no such recurrent activation.
    """
    if layer.recurrent_activation != "sigmoid":
        raise no_such_layer("PyTorch", layer, f'recurrent_activation = "{layer.recurrent_activation}"')
    return Recurrent(layer)


def attribute(part: str) -> str:
    """What `nn.LSTM` calls a tensor of the layer."""
    direction = "_reverse" if part.startswith(REVERSE) else ""
    return _ATTRIBUTES[part.removeprefix(REVERSE)] + direction
