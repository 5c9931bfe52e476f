from __future__ import annotations

import tomllib
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.engines.job import NumericalConventions
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
from polybench.networks.padding import Padding, Sides, same_in_tensorflow
from tests.example_networks import EVERYTHING

_CONV = '{"type":"conv","name":"c","inputs":1,"outputs":2,"kernel":3,"stride":1,"padding":%s,"bias":true,"groups":1}'


def _conv(padding: Padding) -> Conv:
    return Conv("c", 1, 2, 3, padding=padding)


def starts(length: int, size: int, stride: int, pad: tuple[int, int]) -> list[int]:
    """Return the starts of all windows within the padded image, by enumeration."""
    before, after = pad
    return [start for start in range(-before, length + after, stride) if start + size <= length + after]


axes = st.tuples(st.integers(0, 3), st.integers(0, 3))
windows = st.tuples(
    st.integers(1, 40), st.integers(1, 40), st.integers(1, 7), st.integers(1, 4), st.tuples(axes, axes)
).filter(lambda w: all(side + sum(pad) >= w[2] for side, pad in zip(w[:2], w[4], strict=True)))

Window = tuple[int, int, int, int, tuple[tuple[int, int], tuple[int, int]]]


def test_sides_are_in_the_order_of_each_framework() -> None:
    one, two = Sides(1, 2, 3, 4), Sides(10, 20, 30, 50)
    assert (one.axes, one.width_first, str(one)) == (((1, 2), (3, 4)), (3, 4, 1, 2), "[[1, 2], [3, 4]]")
    assert one.plus(two) == Sides(11, 22, 33, 54)
    views = {sides: (sides.symmetric, sides.padding) for sides in (one, Sides(1, 1, 3, 3), Sides(2, 2, 2, 2))}
    assert views == {
        one: (None, ((1, 2), (3, 4))),
        Sides(1, 1, 3, 3): ((1, 3), ((1, 1), (3, 3))),
        Sides(2, 2, 2, 2): ((2, 2), 2),
    }


@given(windows)
def test_a_convolution_has_an_output_for_each_window(window: Window) -> None:
    height, width, kernel, stride, pads = window
    shape = Conv("c", 3, 5, kernel, stride, pads).output_shape((3, height, width))
    assert shape == (5, len(starts(height, kernel, stride, pads[0])), len(starts(width, kernel, stride, pads[1])))


@given(windows)
def test_a_pool_has_an_output_for_each_window(window: Window) -> None:
    height, width, size, stride, pads = window
    if max(map(max, pads)) >= size:
        with pytest.raises(ValueError, match=f"windows without pixels: expected less than {size}"):
            MaxPool(size, stride, pads)
        return
    for pool in (MaxPool(size, stride, pads), AveragePool(size, stride, pads)):
        expected = (2, len(starts(height, size, stride, pads[0])), len(starts(width, size, stride, pads[1])))
        assert pool.output_shape((2, height, width)) == expected


@given(windows)
def test_padding_survives_json_and_toml_in_its_shortest_form(window: Window) -> None:
    *_, kernel, stride, pads = window
    layer = Conv("c", 3, 5, kernel, stride, pads)
    assert msgspec.json.decode(msgspec.json.encode(layer), type=Layer) == layer
    assert msgspec.convert(tomllib.loads(f"padding = {layer.pads}")["padding"], Padding) == layer.padding
    assert layer.pads.axes == pads
    assert isinstance(layer.padding, int) == (len({*pads[0], *pads[1]}) == 1)


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (MaxPool(2), '{"type":"max_pool","size":2,"stride":2}'),
        (AveragePool(3, 1, "valid"), '{"type":"average_pool","size":3,"stride":1}'),
        (AveragePool(3, 1, 0, count_padding=False), '{"type":"average_pool","size":3,"stride":1}'),
        (MaxPool(3, 1, "same"), '{"type":"max_pool","size":3,"stride":1,"padding":1}'),
        (MaxPool(3, 2, ((0, 1), (0, 1))), '{"type":"max_pool","size":3,"stride":2,"padding":[[0,1],[0,1]]}'),
        (AveragePool(2, 2, 1), '{"type":"average_pool","size":2,"stride":2,"padding":1}'),
        (
            AveragePool(2, 2, 1, count_padding=False),
            '{"type":"average_pool","size":2,"stride":2,"padding":1,"count_padding":false}',
        ),
        (_conv("valid"), _CONV % '"valid"'),
        (_conv("same"), _CONV % '"same"'),
        (_conv(0), _CONV % "0"),
        (_conv(1), _CONV % "1"),
        (_conv(((1, 1), (1, 1))), _CONV % "1"),
        (_conv(((1, 1), (0, 0))), _CONV % "[[1,1],[0,0]]"),
    ],
)
def test_a_layer_without_padding_per_side_has_the_json_of_before(layer: Layer, text: str) -> None:
    assert msgspec.json.encode(layer).decode() == text
    assert msgspec.json.decode(text, type=Layer) == layer


@pytest.mark.parametrize("size", [7, 8, 9, 10])
@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (2, 1), (3, 1), (3, 2), (5, 2), (2, 3), (1, 2)])
def test_same_of_tensorflow_has_as_many_windows_as_strides(size: int, kernel: int, stride: int) -> None:
    sides = same_in_tensorflow((3, size, size + 1), kernel, stride)
    shape = Conv("c", 3, 3, kernel, stride, sides.axes).output_shape((3, size, size + 1))
    assert shape == (3, -(-size // stride), -(-(size + 1) // stride))
    assert 0 <= sides.bottom - sides.top <= 1
    assert 0 <= sides.right - sides.left <= 1


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
    asymmetric = 5 * 4 * 5 * 2 * 2
    assert EVERYTHING.forward_macs() == first + block + same + asymmetric + 60 + 18


def test_macs_of_resnet32_match_a_hand_calculation() -> None:
    stem = 3 * 9 * 16 * 32**2
    stages = 10 * 16 * 9 * 16 * 32**2 + sum(
        (half * 9 * full + 9 * full * 9 * full + half * full) * pixels  # with its projection
        for half, full, pixels in ((16, 32, 16**2), (32, 64, 8**2))
    )
    assert find_model("resnet32").forward_macs() == stem + stages + 64 * 10
    assert stem + stages == pytest.approx(69e6, rel=0.01)  # the published number


def test_a_layer_names_the_rules_in_which_engines_differ_for_it() -> None:
    fields = NumericalConventions.__struct_fields__
    rules = {str(kind.__struct_config__.tag): kind.rules for kind in get_args(Layer) if kind.rules}
    assert rules == {"max_pool": ("max_pool_within",), "relu": ("relu_at_zero",)}
    assert all(rule in fields for names in rules.values() for rule in names)
