"""Conversion between the canonical layout and Keras's, without Keras."""

from __future__ import annotations

import numpy as np
import pytest

from polybench.engines.shared.keras_layout import batch_to_keras, flattened_shapes, from_keras, to_keras
from polybench.errors import EngineUnavailable
from polybench.networks.layers import BatchNorm, Dense, Dropout, Flatten, Layer, Residual
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer


@pytest.mark.parametrize(
    ("shape", "flattened"), [((8, 16, 5, 3), None), ((120, 200), None), ((120, 200), (8, 5, 5)), ((7,), None)]
)
def test_from_keras_inverts_to_keras(shape: tuple[int, ...], flattened: tuple[int, int, int] | None) -> None:
    value = np.random.default_rng(0).random(shape)
    np.testing.assert_array_equal(from_keras(to_keras(value, flattened), shape, flattened), value)


def test_axes_that_keras_splits_further_are_joined() -> None:
    random = np.random.default_rng(0)
    projection, depthwise = random.random((6, 6)), random.random((8, 1, 5, 3))
    split = to_keras(projection, None).reshape(6, 2, 3)  # the heads of attention
    np.testing.assert_array_equal(from_keras(split, (6, 6), None), projection)
    multiplied = to_keras(depthwise, None).reshape(5, 3, 4, 2)  # two outputs for each of four inputs
    np.testing.assert_array_equal(from_keras(multiplied, (8, 1, 5, 3), None), depthwise)


def test_a_dense_layer_after_a_flatten_multiplies_the_same_pixels() -> None:
    random = np.random.default_rng(0)
    images, weight = random.random((2, 3, 4, 5)), random.random((6, 60))
    channels_last = images.transpose(0, 2, 3, 1).reshape(2, -1)
    np.testing.assert_array_equal(batch_to_keras(images).reshape(2, -1), channels_last)
    np.testing.assert_array_equal(batch_to_keras(images.reshape(2, -1), (3, 4, 5)), channels_last)
    expected = images.reshape(2, -1) @ weight.T
    np.testing.assert_allclose(channels_last @ to_keras(weight, (3, 4, 5)), expected)


def test_a_convolution_kernel_is_converted_to_height_width_in_out() -> None:
    value = np.random.default_rng(0).random((8, 16, 5, 3))
    assert to_keras(value, None)[1, 2, 10, 7] == value[7, 10, 1, 2]


def after_flatten(*layers: Layer) -> Model:
    network = (Flatten(), *layers, Dense("dense", 12, 2))
    return Model("test", "", (3, 2, 2), 2, network, 2, Optimizer(), 2)


def test_tensors_up_to_the_first_dense_layer_are_in_flattened_order() -> None:
    assert flattened_shapes(LENET) == {"dense1.weight": (8, 5, 5)}
    norm, dropout = BatchNorm("norm", 12), Dropout("dropout", 0.5)
    features = ("norm.weight", "norm.bias", "norm.running_mean", "norm.running_variance")
    block = Residual((norm,), (dropout,))
    expected = dict.fromkeys((*features, "dropout", "dense.weight"), (3, 2, 2))
    assert flattened_shapes(after_flatten(norm, dropout)) == expected
    assert flattened_shapes(after_flatten(Flatten(), block, Flatten())) == expected
    assert flattened_shapes(after_flatten(Dense("first", 12, 12), block)) == {"first.weight": (3, 2, 2)}


def test_a_residual_block_that_adds_features_of_different_orders_is_unavailable() -> None:
    mixed = Residual((Dense("inner", 12, 12),))
    with pytest.raises(EngineUnavailable, match="no residual with a body and a shortcut that flatten"):
        flattened_shapes(after_flatten(mixed))
