from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest

from polybench.engines.job import NumericalConventions
from polybench.engines.reference import layers, sequence_layers
from polybench.engines.reference.layers import Array, Output
from polybench.networks.layers import LSTM
from polybench.networks.padding import Sides

ONE, TWO, END = Sides(1, 1, 1, 1), Sides(2, 2, 2, 2), Sides(0, 1, 2, 1)
CONV = [(2, 3, 6, 7), (4, 3, 3, 3), (4,)]
MASK = np.random.default_rng(1).choice([0.0, 4 / 3], (2, 3, 4, 4))


def numerical_gradient(f: Callable[[], float], x: Array, width: float = 1e-6) -> Array:
    """Compute central differences of f with respect to every entry of x, which f reads."""
    gradient = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        value = x[index]
        x[index] = value + width
        above = f()
        x[index] = value - width
        below = f()
        x[index] = value
        gradient[index] = (above - below) / (2 * width)
    return gradient


def normalized(x: Array, weight: Array, bias: Array, epsilon: float) -> Output:
    return layers.batch_norm(x, *layers.batch_statistics(x), weight, bias, epsilon)


@pytest.mark.parametrize(
    ("layer", "shapes"),
    [
        pytest.param(layers.conv, [(2, 3, 6, 7), (4, 3, 3, 3), (4,)], id="conv"),
        pytest.param(layers.conv, [(2, 3, 6, 7), (4, 3, 3, 3)], id="conv without bias"),
        pytest.param(lambda *a: layers.conv(*a, pads=ONE), [(2, 3, 6, 7), (4, 3, 3, 3), (4,)], id="conv same"),
        pytest.param(lambda *a: layers.conv(*a, stride=2, pads=ONE), [(2, 3, 6, 7), (4, 3, 3, 3), (4,)], id="strided"),
        pytest.param(lambda *a: layers.conv(*a, stride=2, pads=END), CONV, id="padded end"),
        pytest.param(lambda *a: layers.conv(*a, stride=2), [(2, 3, 6, 7), (4, 3, 1, 1), (4,)], id="projection"),
        pytest.param(lambda *a: layers.conv(*a, stride=3, pads=TWO), [(1, 2, 6, 7), (2, 2, 2, 2), (2,)], id="gaps"),
        pytest.param(layers.dense, [(3, 5), (4, 5), (4,)], id="dense"),
        pytest.param(lambda *a: normalized(*a, 1e-5), [(3, 2, 3, 4), (2,), (2,)], id="batch_norm"),
        pytest.param(lambda *a: normalized(*a, 1e-3), [(5, 3), (3,), (3,)], id="batch_norm of features"),
        pytest.param(lambda x: layers.dropout(x, MASK), [(2, 3, 4, 4)], id="dropout"),
        pytest.param(lambda x: layers.max_pool(x, 2, 2), [(2, 3, 6, 7)], id="max_pool"),
        pytest.param(lambda x: layers.max_pool(x, 3, 2), [(2, 3, 6, 7)], id="max_pool that overlaps"),
        pytest.param(lambda x: layers.max_pool(x, 2, 3), [(2, 3, 6, 7)], id="max_pool with gaps"),
        pytest.param(lambda x: layers.max_pool(x, 3, 2, pads=END), [(2, 3, 6, 7)], id="max_pool with padding"),
        pytest.param(lambda x: layers.average_pool(x, 2, 2), [(2, 3, 6, 7)], id="average_pool"),
        pytest.param(lambda x: layers.average_pool(x, 3, 2, END), [(2, 3, 6, 7)], id="average_pool with padding"),
        pytest.param(
            lambda x: layers.average_pool(x, 3, 2, END, count_padding=False),
            [(2, 3, 6, 7)],
            id="average_pool of pixels",
        ),
        pytest.param(lambda x: layers.average_pool(x, 3, 1), [(2, 3, 6, 7)], id="average_pool that overlaps"),
        pytest.param(layers.global_average_pool, [(2, 3, 6, 7)], id="global_average_pool"),
        pytest.param(layers.relu, [(2, 3, 4, 4)], id="relu"),
        pytest.param(layers.flatten, [(2, 3, 4, 4)], id="flatten"),
    ],
)
def test_backward_is_the_derivative_of_forward(layer: Callable[..., Output], shapes: list[tuple[int, ...]]) -> None:
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(shape) for shape in shapes]
    y, backward = layer(*arrays)
    dy = random.standard_normal(y.shape)
    dx, weight_gradients = backward(dy)
    for array, gradient in zip(arrays, [dx, *weight_gradients.values()], strict=True):
        expected = numerical_gradient(lambda: float((layer(*arrays)[0] * dy).sum()), array)
        np.testing.assert_allclose(gradient, expected, rtol=1e-7, atol=1e-7)


def test_convolution_does_not_flip_its_kernel() -> None:
    x = np.zeros((1, 1, 3, 3))
    x[0, 0, 0, 1] = 1
    weight = np.arange(9.0).reshape(1, 1, 3, 3)
    y, _ = layers.conv(x, weight, np.array([0.5]))
    assert y.item() == 1.5


def test_cross_entropy_and_its_gradient_are_correct() -> None:
    random = np.random.default_rng(0)
    logits, labels = random.standard_normal((4, 10)), np.array([0, 3, 3, 9])
    loss, gradient = layers.cross_entropy(logits, labels)
    softmax = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert loss == pytest.approx(-np.log(softmax[np.arange(4), labels]).mean())
    expected = numerical_gradient(lambda: layers.cross_entropy(logits, labels)[0], logits)
    np.testing.assert_allclose(gradient, expected, atol=1e-9)


def test_smoothed_labels_share_a_part_with_all_classes() -> None:
    log_softmax = np.log([0.7, 0.2, 0.1])
    loss, gradient = layers.cross_entropy(log_softmax[None], np.array([1]), smoothing=0.3)
    assert loss == pytest.approx(-0.7 * log_softmax[1] - 0.3 * log_softmax.mean())
    assert gradient == pytest.approx(np.array([[0.7 - 0.1, 0.2 - 0.8, 0.1 - 0.1]]))


def test_cross_entropy_of_huge_logits_does_not_overflow() -> None:
    loss, gradient = layers.cross_entropy(np.array([[1e4, 0.0]]), np.array([1]))
    assert loss == pytest.approx(1e4)
    assert np.isfinite(gradient).all()


def test_the_gradient_of_softmax_twice_is_that_of_its_loss() -> None:
    logits, labels = np.random.default_rng(0).normal(size=(4, 5)), np.array([0, 4, 2, 2])
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    loss, gradient = layers.cross_entropy_of_softmax(logits, labels)
    assert loss == pytest.approx(layers.cross_entropy(p, labels)[0])
    expected = numerical_gradient(lambda: layers.cross_entropy_of_softmax(logits, labels)[0], logits)
    np.testing.assert_allclose(gradient, expected, atol=1e-9)


def test_rounding_to_eleven_bits_is_that_of_float16() -> None:
    x = np.random.default_rng(0).normal(size=1000)
    assert np.array_equal(layers.round_bits(x, 11), x.astype("f2").astype("f8"))
    assert layers.round_bits(np.array([0.0, -3e5]), 11).tolist() == [0.0, -3e5 // 256 * 256]


def pooled_gradient(
    window: list[list[float]], relative_tolerance: float = 0, ties: Literal["first", "all", "shared"] = "first"
) -> list[list[float]]:
    conventions = NumericalConventions(relative_tolerance, max_pool_ties=ties)
    _, backward = layers.max_pool(np.array([[window]], dtype=float), 2, 2, conventions)
    dx, _ = backward(np.ones((1, 1, 1, 1)))
    return dx[0, 0].tolist()


def test_exact_max_pooling_gives_the_gradient_to_the_first_maximum() -> None:
    assert pooled_gradient([[1, 2], [2, 2]], 0) == [[0, 1], [0, 0]]
    assert pooled_gradient([[1, 1], [2, 1]], 0) == [[0, 0], [1, 0]]
    assert pooled_gradient([[0, 0], [0, 0]], 0) == [[1, 0], [0, 0]]


def test_equal_maxima_share_the_gradient_or_each_gets_it_by_convention() -> None:
    assert pooled_gradient([[1, 2], [2, 2]], ties="all") == [[0, 1], [1, 1]]
    assert pooled_gradient([[1, 2], [2, 1]], ties="shared") == [[0, 0.5], [0.5, 0]]


def test_max_pooling_with_tolerance_gives_the_gradient_to_the_first_close_value() -> None:
    near = [[1.0, 1.99], [2.0, 1.98]]
    assert pooled_gradient(near, 0) == [[0, 0], [1, 0]]
    assert pooled_gradient(near, 0.004) == [[0, 0], [1, 0]]
    assert pooled_gradient(near, 0.006) == [[0, 1], [0, 0]]


def test_the_tolerance_is_relative_to_the_larger_absolute_value_as_in_julia() -> None:
    # isapprox(-2, -1, rtol=0.5): |-2 + 1| <= 0.5 max(2, 1)
    assert pooled_gradient([[-2, -9], [-9, -1]], 0.5) == [[1, 0], [0, 0]]
    assert pooled_gradient([[-2, -9], [-9, -1]], 0.49) == [[0, 0], [0, 1]]


def test_pixels_outside_of_all_windows_get_no_gradient() -> None:
    x = np.arange(25.0).reshape(1, 1, 5, 5)
    y, backward = layers.max_pool(x, 2, 2)
    assert y.tolist() == [[[[6, 8], [16, 18]]]]
    dx, _ = backward(np.ones_like(y))
    assert dx.sum() == 4
    assert not dx[..., 4].any()
    assert not dx[..., 4, :].any()


def test_each_side_of_a_convolution_has_its_own_padding() -> None:
    weight = np.zeros((1, 1, 3, 3))
    weight[0, 0, 0, 0] = 1  # selects the pixel above and to the left
    x = np.arange(1.0, 17).reshape(1, 1, 4, 4)
    assert layers.conv(x, weight, None, 2, ONE)[0].tolist() == [[[[0, 0], [0, 6]]]]
    assert layers.conv(x, weight, None, 2, Sides(0, 1, 0, 1))[0].tolist() == [[[[1, 3], [9, 11]]]]
    assert layers.conv(x, weight, None, 2, Sides(1, 0, 0, 1))[0].tolist() == [[[[0, 0], [5, 7]]]]


def test_padding_is_never_a_maximum_nor_near_one() -> None:
    x = -np.ones((1, 1, 2, 2))
    near = NumericalConventions(max_pool_within=0.5, max_pool_ties="all")
    y, backward = layers.max_pool(x, 2, 2, near, Sides(1, 1, 1, 1))
    assert (y == -1).all()
    assert backward(y)[0].tolist() == x.tolist()


def test_padding_counts_in_a_mean_or_not() -> None:
    x = np.full((1, 1, 2, 2), 12.0)
    pads = Sides(0, 1, 0, 1)
    assert layers.average_pool(x, 2, 1, pads)[0].tolist() == [[[[12, 6], [6, 3]]]]
    assert layers.average_pool(x, 2, 1, pads, count_padding=False)[0].tolist() == [[[[12, 12], [12, 12]]]]


def test_a_square_weight_is_transposed_as_any_other() -> None:
    weight, x = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 7.0]])
    assert layers.dense(x, weight)[0].tolist() == [[19, 43]]
    assert layers.dense(x, weight, np.array([1.0, 2.0]))[0].tolist() == [[20, 45]]


def test_repeated_rows_have_the_gradients_of_all_their_images() -> None:
    random = np.random.default_rng(0)
    x, weight, bias = random.normal(size=(2, 3, 4, 5)), random.normal(size=3), random.normal(size=3)
    rows = np.array([0, 1, 1, 0, 1])
    dy = random.normal(size=(5, 3, 4, 5))
    of_rows = np.stack([dy[rows == row].sum(axis=0) for row in range(2)])
    _, backward = layers.batch_norm(x, *layers.batch_statistics(x, rows=rows), weight, bias, 1e-5, rows)
    _, backward_of_all = normalized(x[rows], weight, bias, 1e-5)
    (dx, gradients), (dx_of_all, expected) = backward(of_rows), backward_of_all(dy)
    assert dx == pytest.approx(np.stack([dx_of_all[rows == row].sum(axis=0) for row in range(2)]))
    assert gradients["weight"] == pytest.approx(expected["weight"])
    assert gradients["bias"] == pytest.approx(expected["bias"])


def test_batch_norm_equals_a_manual_computation() -> None:
    x = np.array([[1.0], [3.0]])
    y, _ = normalized(x, np.array([10.0]), np.array([5.0]), 3.0)
    assert y.tolist() == [[0], [10]]  # mean 2, variance 1, sqrt(1 + 3) = 2


def test_average_pooling_equals_a_manual_computation() -> None:
    x = np.arange(9.0).reshape(1, 1, 3, 3)
    assert layers.average_pool(x, 2, 2)[0].tolist() == [[[[2]]]]
    assert layers.average_pool(x, 2, 1)[0].tolist() == [[[[2, 3], [5, 6]]]]
    assert layers.global_average_pool(x)[0].tolist() == [[4]]


def test_float32_partial_sums_lose_small_values() -> None:
    x = np.zeros((1, 2, 1, 1001))
    x[0, :, 0, 0] = 2.0**24  # adding 1 to it in float32 has no effect
    x[0, :, 0, 1:] = 1.0
    (mean, _), (exact, _) = layers.batch_statistics(x, partial_sums=4), layers.batch_statistics(x)
    # A quarter of the ones is added to the sum of pixels 0, 4, 8... and is lost.
    np.testing.assert_allclose(mean, (2.0**24 + 750) / 1001, rtol=1e-7)
    np.testing.assert_allclose(exact, (2.0**24 + 1000) / 1001, rtol=1e-12)


@pytest.mark.parametrize("at_zero", [0.0, 0.5, 1.0])
def test_relu_has_the_declared_derivative_at_zero(at_zero: float) -> None:
    y, back = layers.relu(np.array([-1.0, 0.0, 2.0]), at_zero)
    dx, _ = back(np.full(3, 3.0))
    assert (y.tolist(), dx.tolist()) == ([0.0, 0.0, 2.0], [0.0, 3.0 * at_zero, 3.0])


RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((2, 5, 3))


def tensors(layer: LSTM) -> dict[str, Array]:
    return {name: RANDOM.standard_normal(shape) for name, shape in layer.weight_shapes().items()}


def outputs(layer: LSTM, x: Array, weights: dict[str, Array]) -> Array:
    activation = sequence_layers.RECURRENT[layer.recurrent_activation]
    return sequence_layers.lstm(x, weights, activation, sequence=layer.sequence)[0]


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("options", [{}, {"biases": 2, "recurrent_activation": "hard_sigmoid"}])
def test_the_backward_pass_of_an_lstm_is_the_derivative_of_its_forward_pass(
    bidirectional: bool, sequence: bool, options: dict[str, Any]
) -> None:
    layer = LSTM("lstm", 3, 2, bidirectional, sequence, **options)
    weights = tensors(layer)
    activation = sequence_layers.RECURRENT[layer.recurrent_activation]
    y, backward = sequence_layers.lstm(X, weights, activation, sequence=sequence)
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
