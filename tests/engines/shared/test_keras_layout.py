"""What differs if channels are last, without Keras."""

from __future__ import annotations

import numpy as np
import pytest

from polybench.engines.shared.keras_layout import batch_to_keras, flattened_shapes
from polybench.errors import EngineUnavailable
from polybench.networks.layers import BatchNorm, Dense, Dropout, Flatten, Layer, LayerNorm, Residual
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer


def test_flattened_features_are_those_of_images_with_channels_last() -> None:
    images = np.random.default_rng(0).random((2, 3, 4, 5))
    channels_last = images.transpose(0, 2, 3, 1).reshape(2, -1)
    np.testing.assert_array_equal(batch_to_keras(images).reshape(2, -1), channels_last)
    np.testing.assert_array_equal(batch_to_keras(images.reshape(2, -1), (3, 4, 5)), channels_last)
    np.testing.assert_array_equal(batch_to_keras(images[0]), images[0])  # a batch of sequences


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
    features = ("norm.weight", "norm.bias", "dense.weight")
    assert flattened_shapes(after_flatten(LayerNorm("norm", 12))) == dict.fromkeys(features, (3, 2, 2))
    assert flattened_shapes(after_flatten(Dense("first", 12, 12), block)) == {"first.weight": (3, 2, 2)}


def test_a_residual_block_that_adds_features_of_different_orders_is_unavailable() -> None:
    mixed = Residual((Dense("inner", 12, 12),))
    with pytest.raises(EngineUnavailable, match="no residual with a body and a shortcut that flatten"):
        flattened_shapes(after_flatten(mixed))
