"""Layers of transformers in the reference: derivatives by central finite differences, and values by hand."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from polybench.engines.reference import layers, sequence_layers
from polybench.engines.reference.layers import Array, Output
from polybench.networks.layers import Attention
from tests.engines.reference.test_layers import ONE, numerical_gradient

RANDOM = np.random.default_rng(0)


def attend(heads: int, *, causal: bool, bias: bool = True) -> tuple[Callable[..., Output], list[tuple[int, ...]]]:
    shapes = Attention("attention", 6, heads, causal, bias).weight_shapes()

    def layer(x: Array, *tensors: Array) -> Output:
        named = dict(zip(shapes, tensors, strict=True))
        return sequence_layers.attention(x, named, heads, causal=causal)

    return layer, [(2, 5, 6), *shapes.values()]


@pytest.mark.parametrize(
    ("layer", "shapes"),
    [
        pytest.param(lambda *a: layers.conv(*a, pads=ONE, groups=2), [(2, 4, 5, 6), (6, 2, 3, 3), (6,)], id="grouped"),
        pytest.param(lambda *a: layers.conv(*a, stride=2, groups=3), [(2, 3, 5, 6), (3, 1, 2, 2)], id="depthwise"),
        pytest.param(lambda *a: layers.layer_norm(*a, 1e-5), [(2, 3, 5), (5,), (5,)], id="layer_norm"),
        pytest.param(lambda *a: layers.layer_norm(*a, None, 1e-3), [(4, 5), (5,)], id="layer_norm without bias"),
        pytest.param(lambda *a: layers.group_norm(*a, 2, 1e-5), [(2, 4, 3, 2), (4,), (4,)], id="group_norm"),
        pytest.param(layers.gelu, [(3, 4, 5)], id="gelu"),
        pytest.param(layers.gelu_tanh, [(3, 4, 5)], id="gelu_tanh"),
        pytest.param(layers.silu, [(3, 4, 5)], id="silu"),
        pytest.param(layers.relu6, [(3, 4, 5)], id="relu6"),
        pytest.param(layers.dense, [(2, 3, 5), (4, 5), (4,)], id="dense at each position"),
        pytest.param(layers.dense, [(2, 3, 5), (4, 5)], id="dense without bias"),
        pytest.param(*attend(2, causal=False), id="attention"),
        pytest.param(*attend(3, causal=True), id="causal attention"),
        pytest.param(*attend(1, causal=True, bias=False), id="attention without biases"),
        pytest.param(sequence_layers.positions, [(2, 3, 4), (5, 4)], id="positions"),
        pytest.param(sequence_layers.patches, [(2, 3, 4, 6), (5, 3, 2, 2), (5,)], id="patches"),
        pytest.param(sequence_layers.patches, [(2, 3, 4, 6), (5, 3, 2, 2)], id="patches without bias"),
        pytest.param(sequence_layers.class_token, [(2, 3, 4), (4,)], id="class_token"),
        pytest.param(sequence_layers.first_position, [(2, 3, 4)], id="first_position"),
    ],
)
def test_backward_is_the_derivative_of_forward(layer: Callable[..., Output], shapes: list[tuple[int, ...]]) -> None:
    arrays = [RANDOM.standard_normal(shape) for shape in shapes]
    y, backward = layer(*arrays)
    dy = RANDOM.standard_normal(y.shape)
    dx, weight_gradients = backward(dy)
    for array, gradient in zip(arrays, [dx, *weight_gradients.values()], strict=True):
        expected = numerical_gradient(lambda: float((layer(*arrays)[0] * dy).sum()), array)
        np.testing.assert_allclose(gradient, expected, rtol=1e-6, atol=1e-8)


def test_a_convolution_of_groups_reads_only_its_own_inputs() -> None:
    x, weight = RANDOM.standard_normal((1, 4, 3, 3)), RANDOM.standard_normal((2, 2, 3, 3))
    y, _ = layers.conv(x, weight, None, groups=2)
    expected = [(x[0, :2] * weight[0]).sum(), (x[0, 2:] * weight[1]).sum()]
    np.testing.assert_allclose(y.ravel(), expected, rtol=1e-14)


def test_norms_equal_a_computation_by_hand() -> None:
    x = np.array([[[1.0, 3.0], [0.0, 4.0]]])
    y, _ = layers.layer_norm(x, np.array([10.0, 1.0]), np.array([5.0, 0.0]), 3.0)
    np.testing.assert_allclose(y, [[[0, 0.5], [5 - 20 / 7**0.5, 2 / 7**0.5]]])
    image = np.arange(8.0).reshape(1, 4, 1, 2)  # groups of 0..3 and 4..7: mean 1.5 and 5.5, variance 1.25
    y, _ = layers.group_norm(image, np.ones(4), np.zeros(4), 2, 1.0)
    np.testing.assert_allclose(y.ravel(), np.tile(np.array([-1.5, -0.5, 0.5, 1.5]) / 1.5, 2))


def test_activations_have_their_published_values() -> None:
    x = np.array([-1.0, 0.0, 1.0, 7.0])
    np.testing.assert_allclose(layers.gelu(x)[0][:3], [-0.15865525393145707, 0, 0.8413447460685429])
    np.testing.assert_allclose(layers.gelu_tanh(x)[0][:3], [-0.15880800939172324, 0, 0.8411919906082768])
    np.testing.assert_allclose(layers.silu(x)[0][:3], [-0.2689414213699951, 0, 0.7310585786300049])
    y, backward = layers.relu6(np.array([-1.0, 0.0, 3.0, 6.0, 7.0]))
    assert y.tolist() == [0, 0, 3, 6, 6]
    assert backward(np.ones(5))[0].tolist() == [0, 0, 1, 0, 0]


def test_attention_equals_a_computation_position_by_position() -> None:
    layer, shapes = attend(2, causal=True)
    x, *tensors = (RANDOM.standard_normal(shape) for shape in shapes)
    q, k, v = (x[0] @ tensors[number].T + tensors[4 + number] for number in range(3))
    mixed = np.empty((5, 6))
    for head, position in np.ndindex(2, 5):
        columns = slice(3 * head, 3 * head + 3)
        scores = np.array([q[position, columns] @ k[other, columns] for other in range(position + 1)]) / 3**0.5
        weights = np.exp(scores) / np.exp(scores).sum()
        mixed[position, columns] = sum(w * v[other, columns] for other, w in enumerate(weights))
    np.testing.assert_allclose(layer(x, *tensors)[0][0], mixed @ tensors[3].T + tensors[7], rtol=1e-12)


def test_a_causal_position_does_not_depend_on_later_ones() -> None:
    layer, shapes = attend(3, causal=True)
    x, *tensors = (RANDOM.standard_normal(shape) for shape in shapes)
    later = x.copy()
    later[:, 3:] += 1
    before, after = layer(x, *tensors)[0], layer(later, *tensors)[0]
    np.testing.assert_array_equal(before[:, :3], after[:, :3])
    assert (before[:, 3:] != after[:, 3:]).all()


def test_patches_are_in_rows() -> None:
    image = np.arange(16.0).reshape(1, 1, 4, 4)
    sums, _ = sequence_layers.patches(image, np.ones((1, 1, 2, 2)))
    assert sums.tolist() == [[[10], [18], [42], [50]]]


def test_label_smoothing_gives_a_share_of_the_target_to_every_class() -> None:
    logits, labels = RANDOM.standard_normal((4, 5)), RANDOM.integers(0, 5, 4)
    log_p = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    loss, gradient = layers.cross_entropy(logits, labels, smoothing=0.2)
    assert loss == pytest.approx(-(0.8 * log_p[np.arange(4), labels] + 0.2 * log_p.mean(axis=1)).mean(), rel=1e-14)
    expected = numerical_gradient(lambda: layers.cross_entropy(logits, labels, smoothing=0.2)[0], logits)
    np.testing.assert_allclose(gradient, expected, atol=1e-9)


def test_the_loss_of_positions_is_their_mean() -> None:
    logits, labels = RANDOM.standard_normal((3, 4, 5)), RANDOM.integers(0, 5, (3, 4))
    loss, gradient = layers.cross_entropy(logits, labels)
    flat_loss, flat_gradient = layers.cross_entropy(logits.reshape(12, 5), labels.ravel())
    assert loss == pytest.approx(flat_loss, rel=1e-14)
    np.testing.assert_allclose(gradient, flat_gradient.reshape(3, 4, 5))
    rows = np.array([0, 2, 2, 1])
    repeated, repeated_gradient = layers.cross_entropy(logits, labels, rows)
    assert repeated == pytest.approx(layers.cross_entropy(logits[rows], labels[rows])[0], rel=1e-14)
    np.testing.assert_allclose(repeated_gradient[2], 2 * repeated_gradient[1] * gradient[2] / gradient[1])
