from __future__ import annotations

import hashlib

import numpy as np
import pytest

from polybench.engines.shared.dropout_masks import dropout_mask, dropout_masks
from polybench.networks.keras_examples import KERAS_CNN
from polybench.networks.layers import Dropout


def test_masks_equal_the_golden_mask() -> None:
    # If the definition changes, update this value and the CHANGELOG.
    mask = dropout_mask(Dropout("dropout1", 0.25), (4, 5), seed=0, step=3)
    assert np.packbits(mask > 0).tobytes().hex() == "dfede0"


def test_a_mask_value_equals_a_manual_computation() -> None:
    # crc32("dropout1") = 0x61f61c4c
    bits = np.random.PCG64(np.random.SeedSequence([7, 0x61F61C4C, 2])).random_raw()
    expected = 0.0 if (bits >> 11) * 2.0**-53 < 0.5 else 2.0
    assert dropout_mask(Dropout("dropout1", 0.5), (3,), seed=7, step=2)[0] == expected


def test_every_dropout_layer_has_a_mask_in_the_shape_of_its_input() -> None:
    masks = dropout_masks(KERAS_CNN, 2, seed=0, step=0)
    assert {name: mask.shape for name, mask in masks.items()} == {
        "dropout1": (2, 32, 15, 15),
        "dropout2": (2, 64, 6, 6),
        "dropout3": (2, 512),
    }


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.5])
def test_masks_have_the_scale_of_the_rate_and_mean_one(rate: float) -> None:
    mask = dropout_mask(Dropout("d", rate), (100_000,), seed=0, step=0)
    assert set(np.unique(mask)) <= {0.0, 1 / (1 - rate)}
    # The standard deviation of the mean is at most 0.0032; the tolerance is five of them.
    assert mask.mean() == pytest.approx(1, abs=0.016)


def test_masks_differ_between_seeds_steps_and_layers() -> None:
    masks = [
        dropout_mask(Dropout(name, 0.5), (1000,), seed, step).tobytes()
        for name, seed, step in (("a", 0, 0), ("b", 0, 0), ("a", 1, 0), ("a", 0, 1))
    ]
    assert len({hashlib.sha256(mask).digest() for mask in masks}) == 4
