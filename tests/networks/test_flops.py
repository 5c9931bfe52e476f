from __future__ import annotations

import pytest

from polybench.networks import find_model
from polybench.networks.flops import forward_macs, macs, training_macs
from polybench.networks.layers import LSTM, BatchNorm, Conv, Dense, Embedding, MaxPool, ReLU
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from tests.example_networks import EVERYTHING


def test_convolution_multiplies_its_window_for_every_output_value() -> None:
    assert macs(Conv("conv", 3, 16, 5), (3, 32, 32), (16, 28, 28)) == 3 * 5 * 5 * 16 * 28 * 28


def test_dense_layer_multiplies_each_weight_once() -> None:
    assert macs(Dense("dense", 200, 120), (200,), (120,)) == 24_000


@pytest.mark.parametrize("layer", [ReLU(), MaxPool(2), BatchNorm("norm", 16)])
def test_other_layers_have_no_macs(layer: ReLU | MaxPool | BatchNorm) -> None:
    assert macs(layer, (16, 28, 28), (16, 14, 14)) == 0


def test_lstm_multiplies_its_weights_once_per_gate_and_time_step() -> None:
    one_direction, both_directions = 7 * 4 * 3 * (5 + 3), 2 * 7 * 4 * 3 * (5 + 3)
    assert macs(LSTM("lstm", 5, 3), (7, 5), (3,)) == one_direction
    assert macs(LSTM("lstm", 5, 3, bidirectional=True, sequence=True), (7, 5), (7, 6)) == both_directions


def test_first_lstm_of_a_network_has_no_input_gradient() -> None:
    lstm, dense = LSTM("lstm", 5, 3), Dense("dense", 3, 2)
    after_features = Model("m", "", (7, 5), 2, (lstm, dense), 1, Optimizer(), 1)
    assert training_macs(after_features) == 3 * (7 * 4 * 3 * (5 + 3) + 6) - 7 * 4 * 3 * 5
    after_embedding = Model("m", "", (7,), 2, (Embedding("table", 9, 5), lstm, dense), 1, Optimizer(), 1)
    assert training_macs(after_embedding) == 3 * (7 * 4 * 3 * (5 + 3) + 6)


def test_macs_of_lenet_match_a_hand_calculation() -> None:
    convolutions = 75 * 16 * 28 * 28, 400 * 8 * 10 * 10
    dense = 200 * 120 + 120 * 84 + 84 * 10
    assert forward_macs(LENET) == sum(convolutions) + dense == 1_295_720
    assert training_macs(LENET) == 3 * 1_295_720 - convolutions[0]


def test_each_branch_of_a_residual_block_counts_once() -> None:
    first = 3 * 9 * 4 * 9 * 8
    # The block's two convolutions, the nested one, and the projection; each outputs 5 x 4 pixels.
    block = (4 * 9 + 5 + 4) * 5 * 5 * 4
    same = 5 * 9 * 5 * 4 * 3  # after a 2 x 2 pooling, every pixel
    assert forward_macs(EVERYTHING) == first + block + same + 60 + 18


def test_macs_of_resnet32_match_a_hand_calculation() -> None:
    stem = 3 * 9 * 16 * 32**2
    stages = 10 * 16 * 9 * 16 * 32**2 + sum(
        (half * 9 * full + 9 * full * 9 * full + half * full) * pixels  # with its projection
        for half, full, pixels in ((16, 32, 16**2), (32, 64, 8**2))
    )
    assert forward_macs(find_model("resnet32")) == stem + stages + 64 * 10
    assert stem + stages == pytest.approx(69e6, rel=0.01)  # the published number
