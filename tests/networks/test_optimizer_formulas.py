"""Each formula with known values: two steps from w = 1 at rate 0.1, with the gradients 2 and 1."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
import pytest

from polybench.networks.optimizer_formulas import apply_update
from polybench.networks.optimizers import Optimizer

KNOWN_VALUES = [
    (Optimizer("sgd"), [0.8, 0.7]),
    (Optimizer("momentum", momentum=0.9), [0.8, 0.8 - 0.1 * (0.9 * 2 + 1)]),
    (Optimizer("nesterov", momentum=0.5), [1 - 0.1 * (2 + 0.5 * 2), 0.7 - 0.1 * (1 + 0.5 * (0.5 * 2 + 1))]),
    # s is 0.1 x 4, then 0.9 x 0.4 + 0.1 x 1
    (Optimizer("rmsprop"), [w := 1 - 0.2 / (sqrt(0.4) + 1e-7), w - 0.1 / (sqrt(0.46) + 1e-7)]),
    # m and v, bias-corrected: 2 and 4, then (0.18 + 0.1) / 0.19 and (0.003996 + 0.001) / 0.001999
    (
        Optimizer("adam"),
        [w := 1 - 0.2 / (2 + 1e-8), w - 0.1 * (0.28 / 0.19) / (sqrt(0.004996 / 0.001999) + 1e-8)],
    ),
    (Optimizer("sgd", weight_decay=0.5), [w := 1 - 0.1 * (2 + 0.5), w - 0.1 * (1 + 0.5 * w)]),
    # The first gradient is 2 + 0.5, the second 1 + 0.5 w.
    (
        Optimizer("momentum", momentum=0.9, weight_decay=0.5),
        [w := 0.75, w - 0.1 * (0.9 * 2.5 + 1 + 0.5 * w)],
    ),
    (Optimizer("rmsprop", weight_decay=0.5), [1 - 0.25 / (sqrt(0.625) + 1e-7), None]),
    (Optimizer("adam", weight_decay=0.5), [1 - 0.25 / (2.5 + 1e-8), None]),
]


@pytest.mark.parametrize(("optimizer", "expected"), KNOWN_VALUES)
def test_two_steps_have_known_values(optimizer: Optimizer, expected: list[float | None]) -> None:
    w, state = np.array([1.0]), {}
    for gradient, reached in zip((2.0, 1.0), expected, strict=True):
        w, state = apply_update(optimizer, 0.1, w, np.array([gradient]), state)
        assert reached is None or w.item() == pytest.approx(reached, rel=1e-14)


@pytest.mark.parametrize("name", ["momentum", "nesterov", "rmsprop", "adam"])
def test_the_state_does_not_contain_the_rate(name: Any) -> None:
    w, gradient = np.array([1.0, -1.0]), np.array([2.0, 0.5])
    _, state = apply_update(Optimizer(name), 0.1, w, gradient, {})
    _, other = apply_update(Optimizer(name), 0.001, w, gradient, {})
    assert state.keys() == other.keys()
    assert all(np.array_equal(state[key], other[key]) for key in state)


def test_epsilon_is_added_to_the_root() -> None:
    # The gradient is as small as epsilon; under the root, the result would be 1e-7 / sqrt(1e-15 + 1e-7).
    w, tiny = np.zeros(1), np.array([1e-7])
    assert apply_update(Optimizer("rmsprop"), 1.0, w, tiny, {})[0].item() == pytest.approx(-1 / (sqrt(0.1) + 1))
    # The result would be 1e-8 / (sqrt(0.001) 1e-8 + 1e-8) if it were added before the bias correction.
    assert apply_update(Optimizer("adam"), 1.0, w, tiny / 10, {})[0].item() == pytest.approx(-1 / 2)
