"""Weights that the code of a network in PyTorch trains; tests/scripts/test_network_code.py runs it."""

from __future__ import annotations

import msgspec

from polybench.networks.layers import LSTM, Dense, LayerNorm
from polybench.scripts.network_code import write_code
from tests.example_networks import FEATURES


def test_pytorch_trains_the_second_bias_of_an_lstm_only_if_the_network_has_it() -> None:
    frozen = ".bias_hh_l0).requires_grad_(False)"
    for biases in (1, 2):
        lstm = LSTM("lstm", 4, 3, biases=biases)
        model = msgspec.structs.replace(FEATURES, layers=(lstm, Dense("dense", 3, 4)))
        code = write_code(model, "torch")
        assert (frozen in code) == (biases == 1)


def test_pytorch_has_the_epsilon_of_the_networks_norm() -> None:
    layers = (LayerNorm("norm", 4, epsilon=1e-3), LSTM("lstm", 4, 3), Dense("dense", 3, 4))
    model = msgspec.structs.replace(FEATURES, layers=layers)
    assert "nn.LayerNorm(4, eps=0.001)" in write_code(model, "torch")
