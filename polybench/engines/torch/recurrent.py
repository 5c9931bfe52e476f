"""Idiomatic `nn.LSTM`: batch first, one call for all time steps and both directions. Imports torch.

PyTorch's gates are in the canonical order. `nn.LSTM` always has two biases. If the network has one, the
second is 0 and not trained, which is equivalent.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from polybench.engines.shared.frameworks import unsupported_layer
from polybench.networks.layers import LSTM, REVERSE

_ATTRIBUTES = {
    "weight": "weight_ih_l0",
    "recurrent": "weight_hh_l0",
    "bias": "bias_ih_l0",
    "recurrent_bias": "bias_hh_l0",
}


class SequentialLSTM(nn.LSTM):  # type: ignore[misc]
    """`nn.LSTM` for use in a `Sequential`: returns all outputs, or only the last output of each direction."""

    def __init__(self, layer: LSTM) -> None:
        super().__init__(layer.inputs, layer.units, batch_first=True, bidirectional=layer.bidirectional)
        self.sequence = layer.sequence
        if layer.biases == 1:
            for direction in layer.directions:
                bias = getattr(self, lstm_attribute(f"{direction}recurrent_bias"))
                torch.nn.init.zeros_(bias).requires_grad_(False)

    def forward(self, x: Any) -> Any:
        outputs, (last, _) = super().forward(x)
        if self.sequence:
            return outputs
        # (directions, batch, units). The last output of the second direction is at the first time step.
        return last[0] if len(last) == 1 else torch.cat([last[0], last[1]], dim=1)


def build_lstm(layer: LSTM) -> SequentialLSTM:
    """Build the layer's module.

    Raises:
        EngineUnavailable: `nn.LSTM` does not support the recurrent activation.
    """
    if layer.recurrent_activation != "sigmoid":
        raise unsupported_layer("PyTorch", layer, f'recurrent_activation = "{layer.recurrent_activation}"')
    return SequentialLSTM(layer)


def lstm_attribute(tensor: str) -> str:
    """Return `nn.LSTM`'s attribute name for a canonical tensor."""
    direction = "_reverse" if tensor.startswith(REVERSE) else ""
    return _ATTRIBUTES[tensor.removeprefix(REVERSE)] + direction
