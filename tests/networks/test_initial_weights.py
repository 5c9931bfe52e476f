from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.networks import MODELS
from polybench.networks.initial_weights import LIMITS, glorot_limit, initial_weights, weights_sha256
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.resnet32 import RESNET32
from tests.example_networks import EVERYTHING, RESNET8, SEQUENCES

SEEDS = st.integers(0, 2**63)


@pytest.mark.parametrize(
    ("name", "golden"),
    [
        ("lenet", "cd3d3289ae927e7174e37eb78e88a07676a88d39b4b9e57783af971721a330a2"),
        ("keras-cnn", "0d2ff24d11778fb25b433427a12c307d5f6df141dbb1cd14b30d679873889161"),
        ("resnet32", "07548ed8264772c779d4a5c444794c2f164137ff23a96790218a4844acb903ad"),
    ],
    ids=["lenet", "keras-cnn", "resnet32"],
)
def test_weights_of_seed_0_have_their_golden_hash(name: str, golden: str) -> None:
    # They change only with the definition. Then note it in the CHANGELOG: saved studies are not comparable.
    assert weights_sha256(initial_weights(MODELS[name], 0)) == golden


def test_a_weight_can_be_recomputed_by_hand() -> None:
    # crc32("conv1.weight") = 0xcb487135; fans 3 * 25 and 16 * 25.
    bits = np.random.PCG64(np.random.SeedSequence([7, 0xCB487135])).random_raw()
    limit = (6 / (75 + 400)) ** 0.5
    expected = np.float32((2 * (bits >> 11) * 2.0**-53 - 1) * limit)
    assert initial_weights(LENET, 7)["conv1.weight"].flat[0] == expected


def test_he_weights_are_uniform_with_variance_2_over_fan_in() -> None:
    weights = initial_weights(RESNET32, 0)["stage3.block2.conv1.weight"]
    assert np.abs(weights).max() <= np.float32((6 / 576) ** 0.5)
    # The standard deviation of 36,864 uniform values has an error of 0.24 %; the test allows five times that.
    assert weights.std() == pytest.approx((2 / 576) ** 0.5, rel=0.012)


CONSTANTS = {"weight": 1, "bias": 0, "running_mean": 0, "running_variance": 1}


@pytest.mark.parametrize("model", [EVERYTHING, SEQUENCES, RESNET8], ids=lambda model: model.name)
def test_weights_have_their_shapes_types_and_limits(model: Model) -> None:
    weights = initial_weights(model, 1)
    assert list(weights) == list(model.tensor_shapes())
    limit = LIMITS[model.initialization]
    for name, shape in model.tensor_shapes().items():
        value = weights[name]
        assert (value.shape, value.dtype) == (shape, np.float32)
        assert value.flags.c_contiguous
        if value.ndim == 1:
            assert (value == CONSTANTS.get(name.rpartition(".")[2], 0)).all()
        else:
            assert 0.4 * limit(shape) < np.abs(value).max() <= np.float32(limit(shape))


def test_weights_fill_their_range_evenly() -> None:
    weights = initial_weights(LENET, 0)["dense1.weight"]
    scaled = weights / glorot_limit(weights.shape)
    # 24,000 uniform values: mean 0 +- 0.0037, standard deviation 0.577; the test allows five deviations.
    assert abs(scaled.mean()) < 0.019
    assert scaled.std() == pytest.approx(3**-0.5, abs=0.01)


@given(seed=SEEDS)
def test_weights_depend_on_the_seed_alone(seed: int) -> None:
    digest = weights_sha256(initial_weights(LENET, seed))
    assert digest == weights_sha256(initial_weights(LENET, seed))
    assert digest != weights_sha256(initial_weights(LENET, seed + 1))


def test_hash_depends_on_order_and_values_but_not_on_names_or_memory_layout() -> None:
    one, two = np.float32([[1, 2], [3, 4]]), np.float32([5])
    hashed = weights_sha256({"a": one, "b": two})
    assert hashed == weights_sha256({"x": np.asfortranarray(one), "y": two})
    assert hashed != weights_sha256({"b": two, "a": one})
    assert hashed != weights_sha256({"a": one, "b": -two})
