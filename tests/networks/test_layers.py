from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.networks import find_model
from polybench.networks.layers import (
    LSTM,
    AveragePool,
    BatchNorm,
    Conv,
    Dense,
    Embedding,
    Flatten,
    GlobalAveragePool,
    Layer,
    MaxPool,
    ReLU,
    Residual,
    layer_shapes,
    walk,
)
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from tests.example_networks import EVERYTHING


def starts(length: int, size: int, stride: int, pad: int) -> list[int]:
    """Return the starts of all windows within the padded image, by enumeration."""
    return [start for start in range(-pad, length + pad, stride) if start + size <= length + pad]


windows = st.tuples(
    st.integers(1, 40), st.integers(1, 40), st.integers(1, 7), st.integers(1, 4), st.integers(0, 3)
).filter(lambda w: min(w[0], w[1]) + 2 * w[4] >= w[2])


@given(windows)
def test_a_convolution_has_an_output_for_each_window(window: tuple[int, int, int, int, int]) -> None:
    height, width, kernel, stride, pad = window
    shape = Conv("c", 3, 5, kernel, stride, pad).output_shape((3, height, width))
    assert shape == (5, len(starts(height, kernel, stride, pad)), len(starts(width, kernel, stride, pad)))


@given(windows)
def test_a_pool_has_an_output_for_each_window(window: tuple[int, int, int, int, int]) -> None:
    height, width, size, stride, _ = window
    if min(height, width) < size:
        return
    for pool in (MaxPool(size, stride), AveragePool(size, stride)):
        expected = (2, len(starts(height, size, stride, 0)), len(starts(width, size, stride, 0)))
        assert pool.output_shape((2, height, width)) == expected


@given(st.integers(1, 64), st.integers(0, 5))
def test_same_keeps_the_size(side: int, half: int) -> None:
    assert Conv("c", 3, 3, 2 * half + 1, padding="same").output_shape((3, side, side)) == (3, side, side)


@pytest.mark.parametrize(("kernel", "stride"), [(3, 2), (2, 1)])
def test_same_is_rejected_if_frameworks_differ(kernel: int, stride: int) -> None:
    with pytest.raises(ValueError, match=r"conv9: padding \"same\" requires stride 1 and an odd kernel"):
        Conv("conv9", 3, 3, kernel, stride, "same")


def test_a_pool_of_3_on_256_pixels_drops_the_last_pixel() -> None:
    assert MaxPool(3).output_shape((32, 256, 256)) == (32, 85, 85)
    assert MaxPool(3) == MaxPool(3, 3)


@pytest.mark.parametrize(
    ("layer", "shape", "message"),
    [
        (Conv("c", 3, 8, 3), (4, 9, 9), "c: expected 3 channels or features"),
        (Dense("d", 10, 2), (11,), "d: expected 10"),
        (BatchNorm("n", 5), (4, 2, 2), "n: expected 5"),
        (Conv("c", 3, 8, 5), (3, 4, 9), "windows of 5 x 5"),
        (MaxPool(2), (8,), r"expected \(channels, height, width\), got \(8,\)"),
        (Residual((Conv("c", 3, 8, 3, padding=1),)), (3, 4, 4), r"different shapes, \(8, 4, 4\) and \(3, 4, 4\)"),
    ],
)
def test_layers_that_do_not_fit_are_rejected(layer: Layer, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        layer.output_shape(shape)


CONV, NORM, PROJECTION = (Conv("c", 3, 4, 3, 2, 1, bias=False), BatchNorm("n", 4), Conv("p", 3, 4, 1, 2))
BLOCK = Residual((CONV, NORM), (PROJECTION,))
LAYERS = (BLOCK, ReLU(), GlobalAveragePool(), Dense("d", 4, 2))


def model(layers: tuple[Layer, ...] = LAYERS, classes: int = 2) -> Model:
    return Model("m", "", (3, 7, 7), classes, layers, 1, Optimizer(), 1)


def test_walk_includes_the_layers_of_a_residual_block() -> None:
    assert list(walk(LAYERS)) == [BLOCK, CONV, NORM, PROJECTION, *LAYERS[1:]]
    assert [(layer, after) for layer, _, after in layer_shapes((BLOCK, Flatten()), (3, 7, 7))] == [
        (CONV, (4, 4, 4)),
        (NORM, (4, 4, 4)),
        (PROJECTION, (4, 4, 4)),
        (BLOCK, (4, 4, 4)),
        (Flatten(), (64,)),
    ]


def test_state_comes_after_trained_tensors() -> None:
    trained = ["c.weight", "n.weight", "n.bias", "p.weight", "p.bias", "d.weight", "d.bias"]
    assert list(model().weight_shapes()) == trained
    assert list(model().tensor_shapes()) == [*trained, "n.running_mean", "n.running_variance"]
    assert model().parameters() == 4 * 27 + 8 + 16 + 10
    assert model().total_parameters() == model().parameters() + 8


def test_a_model_is_the_same_after_json() -> None:
    assert msgspec.json.decode(msgspec.json.encode(model()), type=Model) == model()


@pytest.mark.parametrize(
    ("layers", "classes", "message"),
    [(LAYERS, 3, r"shape \(2,\), expected 3 classes"), ((*LAYERS, Dense("c", 2, 2)), 2, "layer names must be unique")],
)
def test_a_network_whose_layers_do_not_fit_is_rejected(layers: tuple[Layer, ...], classes: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        model(layers, classes)


def test_lstm_multiplies_its_weights_once_per_gate_and_time_step() -> None:
    one_direction, both_directions = 7 * 4 * 3 * (5 + 3), 2 * 7 * 4 * 3 * (5 + 3)
    assert LSTM("lstm", 5, 3).macs((7, 5)) == one_direction
    assert LSTM("lstm", 5, 3, bidirectional=True, sequence=True).macs((7, 5)) == both_directions


def test_first_lstm_of_a_network_has_no_input_gradient() -> None:
    lstm, dense = LSTM("lstm", 5, 3), Dense("dense", 3, 2)
    after_features = Model("m", "", (7, 5), 2, (lstm, dense), 1, Optimizer(), 1)
    assert after_features.training_macs() == 3 * (7 * 4 * 3 * (5 + 3) + 6) - 7 * 4 * 3 * 5
    after_embedding = Model("m", "", (7,), 2, (Embedding("table", 9, 5), lstm, dense), 1, Optimizer(), 1)
    assert after_embedding.training_macs() == 3 * (7 * 4 * 3 * (5 + 3) + 6)


def test_macs_of_lenet_match_a_hand_calculation() -> None:
    convolutions = 75 * 16 * 28 * 28, 400 * 8 * 10 * 10
    dense = 200 * 120 + 120 * 84 + 84 * 10
    assert LENET.forward_macs() == sum(convolutions) + dense == 1_295_720
    assert LENET.training_macs() == 3 * 1_295_720 - convolutions[0]


def test_each_branch_of_a_residual_block_counts_once() -> None:
    first = 3 * 9 * 4 * 9 * 8
    # The block's two convolutions, the nested one, and the projection; each outputs 5 x 4 pixels.
    block = (4 * 9 + 5 + 4) * 5 * 5 * 4
    same = 5 * 9 * 5 * 4 * 3  # after a 2 x 2 pooling, every pixel
    assert EVERYTHING.forward_macs() == first + block + same + 60 + 18


def test_macs_of_resnet32_match_a_hand_calculation() -> None:
    stem = 3 * 9 * 16 * 32**2
    stages = 10 * 16 * 9 * 16 * 32**2 + sum(
        (half * 9 * full + 9 * full * 9 * full + half * full) * pixels  # with its projection
        for half, full, pixels in ((16, 32, 16**2), (32, 64, 8**2))
    )
    assert find_model("resnet32").forward_macs() == stem + stages + 64 * 10
    assert stem + stages == pytest.approx(69e6, rel=0.01)  # the published number
