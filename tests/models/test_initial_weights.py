from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.models import MODELS
from polybench.models.initial_weights import glorot_limit, initial_weights, weights_sha256
from polybench.models.lenet import LENET

SEEDS = st.integers(0, 2**63)


def test_lenet_of_seed_0_has_its_golden_hash() -> None:
    golden = "cd3d3289ae927e7174e37eb78e88a07676a88d39b4b9e57783af971721a330a2"
    assert weights_sha256(initial_weights(LENET, 0)) == golden


def test_a_weight_can_be_recomputed_by_hand() -> None:
    # crc32("conv1.weight") = 0xcb487135; fans 3 * 25 and 16 * 25.
    bits = np.random.PCG64(np.random.SeedSequence([7, 0xCB487135])).random_raw()
    limit = (6 / (75 + 400)) ** 0.5
    expected = np.float32((2 * (bits >> 11) * 2.0**-53 - 1) * limit)
    assert initial_weights(LENET, 7)["conv1.weight"].flat[0] == expected


def test_lenet_has_39558_parameters() -> None:
    assert sum(value.size for value in initial_weights(LENET, 0).values()) == 39_558


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
@given(seed=SEEDS)
def test_shapes_types_and_limits(model, seed: int) -> None:
    weights = initial_weights(model, seed)
    assert {name: value.shape for name, value in weights.items()} == model.weight_shapes()
    for name, value in weights.items():
        assert value.dtype == np.float32
        assert value.flags.c_contiguous
        if name.endswith(".bias"):
            assert not value.any()
        else:
            assert np.abs(value).max() <= np.float32(glorot_limit(value.shape))


def test_weights_fill_their_range_evenly() -> None:
    weights = initial_weights(LENET, 0)["dense1.weight"]
    scaled = weights / glorot_limit(weights.shape)
    # 24,000 uniform values: mean 0 +- 0.0037, standard deviation 0.577; five deviations are allowed.
    assert abs(scaled.mean()) < 0.019
    assert scaled.std() == pytest.approx(3**-0.5, abs=0.01)


@given(seed=SEEDS)
def test_the_same_seed_gives_the_same_weights_and_another_others(seed: int) -> None:
    own = weights_sha256(initial_weights(LENET, seed))
    assert own == weights_sha256(initial_weights(LENET, seed))
    assert own != weights_sha256(initial_weights(LENET, seed + 1))


def test_the_hash_sees_order_and_values_but_not_names_or_memory_layout() -> None:
    one, two = np.float32([[1, 2], [3, 4]]), np.float32([5])
    hashed = weights_sha256({"a": one, "b": two})
    assert hashed == weights_sha256({"x": np.asfortranarray(one), "y": two})
    assert hashed != weights_sha256({"b": two, "a": one})
    assert hashed != weights_sha256({"a": one, "b": -two})
