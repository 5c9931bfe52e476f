from __future__ import annotations

import hashlib

import numpy as np
import pytest

from polybench.core.layers import Dropout
from polybench.engines.support.dropout_masks import dropout_mask, dropout_masks
from polybench.models.keras_cnn import KERAS_CNN


def test_golden() -> None:
    # Changes only with the definition: then say so in the CHANGELOG.
    mask = dropout_mask(Dropout("dropout1", 0.25), (4, 5), seed=0, step=3)
    assert np.packbits(mask > 0).tobytes().hex() == "dfede0"


def test_a_value_can_be_recomputed_by_hand() -> None:
    # crc32("dropout1") = 0x61f61c4c
    bits = np.random.PCG64(np.random.SeedSequence([7, 0x61F61C4C, 2])).random_raw()
    expected = 0.0 if (bits >> 11) * 2.0**-53 < 0.5 else 2.0
    assert dropout_mask(Dropout("dropout1", 0.5), (3,), seed=7, step=2)[0] == expected


def test_every_dropout_layer_gets_a_mask_of_its_input() -> None:
    masks = dropout_masks(KERAS_CNN, 2, seed=0, step=0)
    assert {name: mask.shape for name, mask in masks.items()} == {
        "dropout1": (2, 32, 15, 15),
        "dropout2": (2, 64, 6, 6),
        "dropout3": (2, 512),
    }


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.5])
def test_the_rate_is_that_of_the_layer_and_the_mean_stays(rate: float) -> None:
    mask = dropout_mask(Dropout("d", rate), (100_000,), seed=0, step=0)
    assert set(np.unique(mask)) <= {0.0, 1 / (1 - rate)}
    # The standard deviation of the mean is at most 0.0032; five are allowed.
    assert mask.mean() == pytest.approx(1, abs=0.016)


def test_seeds_steps_and_layers_differ() -> None:
    masks = [
        dropout_mask(Dropout(name, 0.5), (1000,), seed, step).tobytes()
        for name, seed, step in (("a", 0, 0), ("b", 0, 0), ("a", 1, 0), ("a", 0, 1))
    ]
    assert len({hashlib.sha256(mask).digest() for mask in masks}) == 4
