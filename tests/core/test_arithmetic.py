from __future__ import annotations

import pytest

from polybench.core.arithmetic import forward_multiply_adds, multiply_adds, training_multiply_adds
from polybench.core.layers import BatchNorm, Conv, Dense, MaxPool, ReLU
from polybench.core.model import Model
from polybench.core.optimizers import Optimizer
from polybench.core.sequence_layers import LSTM, Embedding
from polybench.models import find_model
from polybench.models.lenet import LENET
from tests.networks import EVERYTHING


def test_a_convolution_multiplies_its_window_for_every_value_that_it_puts_out() -> None:
    assert multiply_adds(Conv("conv", 3, 16, 5), (3, 32, 32), (16, 28, 28)) == 3 * 5 * 5 * 16 * 28 * 28


def test_a_dense_layer_multiplies_each_weight_once() -> None:
    assert multiply_adds(Dense("dense", 200, 120), (200,), (120,)) == 24_000


@pytest.mark.parametrize("layer", [ReLU(), MaxPool(2), BatchNorm("norm", 16)])
def test_others_are_not_counted(layer: ReLU | MaxPool | BatchNorm) -> None:
    assert multiply_adds(layer, (16, 28, 28), (16, 14, 14)) == 0


def test_an_lstm_multiplies_its_weights_once_for_each_gate_at_each_time() -> None:
    one, both = 7 * 4 * 3 * (5 + 3), 2 * 7 * 4 * 3 * (5 + 3)
    assert multiply_adds(LSTM("lstm", 5, 3), (7, 5), (3,)) == one
    assert multiply_adds(LSTM("lstm", 5, 3, bidirectional=True, sequence=True), (7, 5), (7, 6)) == both


def test_of_a_sequence_only_what_an_lstm_does_with_its_input_has_no_data_gradient() -> None:
    lstm, dense = LSTM("lstm", 5, 3), Dense("dense", 3, 2)
    behind_numbers = Model("m", "", (7, 5), 2, (lstm, dense), 1, Optimizer(), 1)
    assert training_multiply_adds(behind_numbers) == 3 * (7 * 4 * 3 * (5 + 3) + 6) - 7 * 4 * 3 * 5
    behind_tokens = Model("m", "", (7,), 2, (Embedding("table", 9, 5), lstm, dense), 1, Optimizer(), 1)
    assert training_multiply_adds(behind_tokens) == 3 * (7 * 4 * 3 * (5 + 3) + 6)


def test_lenet_by_hand() -> None:
    convolutions = 75 * 16 * 28 * 28, 400 * 8 * 10 * 10
    dense = 200 * 120 + 120 * 84 + 84 * 10
    assert forward_multiply_adds(LENET) == sum(convolutions) + dense == 1_295_720
    assert training_multiply_adds(LENET) == 3 * 1_295_720 - convolutions[0]


def test_both_branches_of_a_residual_block_count_once() -> None:
    first = 3 * 9 * 4 * 9 * 8
    # The block's two convolutions and the one inside of it, then its projection; all put out 5 x 4 pixels.
    block = (4 * 9 + 5 + 4) * 5 * 5 * 4
    same = 5 * 9 * 5 * 4 * 3  # behind a pooling of 2 x 2, every pixel
    assert forward_multiply_adds(EVERYTHING) == first + block + same + 60 + 18


def test_resnet32_by_hand() -> None:
    stem = 3 * 9 * 16 * 32**2
    stages = 10 * 16 * 9 * 16 * 32**2 + sum(
        (half * 9 * full + 9 * full * 9 * full + half * full) * pixels  # with its projection
        for half, full, pixels in ((16, 32, 16**2), (32, 64, 8**2))
    )
    assert forward_multiply_adds(find_model("resnet32")) == stem + stages + 64 * 10
    assert stem + stages == pytest.approx(69e6, rel=0.01)  # the figure that is quoted for it
