from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from polybench.engines.reference import sequences
from polybench.engines.reference.layers import Array
from polybench.networks.layers import LSTM
from tests.engines.reference.test_layers import numerical_gradient

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 5, 3))


def tensors(layer: LSTM) -> dict[str, Array]:
    return {name: RANDOM.standard_normal(shape) for name, shape in layer.weight_shapes().items()}


def outputs(layer: LSTM, x: Array, weights: dict[str, Array]) -> Array:
    activation = sequences.RECURRENT[layer.recurrent_activation]
    return sequences.lstm(x, weights, activation, sequence=layer.sequence)[0]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("options", [{}, {"biases": 2, "recurrent_activation": "hard_sigmoid"}])
def test_backward_is_the_derivative_of_forward(bidirectional: bool, sequence: bool, options: dict[str, Any]) -> None:
    layer = LSTM("lstm", 3, 2, bidirectional, sequence, **options)
    weights = tensors(layer)
    activation = sequences.RECURRENT[layer.recurrent_activation]
    y, backward = sequences.lstm(X, weights, activation, sequence=sequence)
    assert y.shape[1:] == layer.output_shape(X.shape[1:])
    dy = RANDOM.standard_normal(y.shape)
    dx, gradients = backward(dy)
    assert list(gradients) == list(weights)
    for array, gradient in zip([X, *weights.values()], [dx, *gradients.values()], strict=True):
        expected = numerical_gradient(lambda: float((outputs(layer, X, weights) * dy).sum()), array)
        np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)


def test_an_lstm_equals_a_manual_computation() -> None:
    layer = LSTM("lstm", 1, 1)
    weights = {
        "weight": np.array([[0.1], [0.2], [0.3], [0.4]]),
        "recurrent": np.array([[0.5], [0.6], [0.7], [0.8]]),
        "bias": np.array([-0.1, -0.2, -0.3, -0.4]),
    }

    def s(x: float) -> float:
        return float(1 / (1 + np.exp(-x)))

    h = c = 0.0
    for x in (2.0, -1.0):
        i, f = s(0.1 * x + 0.5 * h - 0.1), s(0.2 * x + 0.6 * h - 0.2)
        g, o = np.tanh(0.3 * x + 0.7 * h - 0.3), s(0.4 * x + 0.8 * h - 0.4)
        c = f * c + i * g
        h = o * np.tanh(c)
    assert outputs(layer, np.array([[[2.0], [-1.0]]]), weights).item() == pytest.approx(h, rel=1e-14)


def test_the_second_direction_reads_the_reversed_sequence() -> None:
    one, both = LSTM("lstm", 3, 2, sequence=True), LSTM("lstm", 3, 2, bidirectional=True, sequence=True)
    weights = tensors(both)
    forwards = outputs(one, X, {name: weights[name] for name in one.weight_shapes()})
    backwards = outputs(one, X[:, ::-1], {name: weights[f"reverse_{name}"] for name in one.weight_shapes()})
    expected = np.concatenate([forwards, backwards[:, ::-1]], axis=-1)
    np.testing.assert_array_equal(outputs(both, X, weights), expected)
    last = LSTM("lstm", 3, 2, bidirectional=True)
    np.testing.assert_array_equal(
        outputs(last, X, weights), np.concatenate([forwards[:, -1], backwards[:, -1]], axis=-1)
    )


def test_two_biases_are_equivalent_to_their_sum() -> None:
    layer = LSTM("lstm", 3, 2, biases=2)
    weights = tensors(layer)
    summed = {name: weights[name] for name in ("weight", "recurrent")}
    summed["bias"] = weights["bias"] + weights["recurrent_bias"]
    np.testing.assert_allclose(outputs(layer, X, weights), outputs(LSTM("lstm", 3, 2), X, summed), rtol=1e-14)


def test_gradients_of_a_repeated_token_are_summed() -> None:
    weight = RANDOM.standard_normal((4, 2))
    tokens = np.array([[3, 0, 3]], np.int32)
    y, backward = sequences.embedding(tokens, weight)
    np.testing.assert_array_equal(y, weight[[3, 0, 3]][None])
    dy = RANDOM.standard_normal(y.shape)
    _, gradients = backward(dy)
    np.testing.assert_allclose(gradients["weight"], [dy[0, 1], [0, 0], [0, 0], dy[0, 0] + dy[0, 2]])


def test_the_mean_over_time_and_its_gradient_are_correct() -> None:
    y, backward = sequences.mean_over_time(X)
    np.testing.assert_allclose(y, X.sum(axis=1) / 5)
    np.testing.assert_allclose(backward(np.ones((2, 3)))[0], np.full(X.shape, 0.2))
