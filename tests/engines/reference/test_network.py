from __future__ import annotations

import numpy as np
import pytest

from polybench.engines.job import NO_DEVIATIONS, Job, NumericalConventions
from polybench.engines.reference.engine import ReferenceEngine
from polybench.engines.reference.layers import conv, cross_entropy, round_bits
from polybench.engines.reference.network import loss_and_gradients
from polybench.engines.shared.batches import dropout_masks
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import Dense, Dropout
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.networks.padding import Sides
from polybench.schema.options import Workload
from tests.example_networks import EVERYTHING, FEATURES, PATCHED, SEQUENCES, TEXT

RANDOM = np.random.default_rng(0)
IMAGES, LABELS = RANDOM.random((2, 4, 3, 9, 8), dtype=np.float32), RANDOM.integers(0, 3, (2, 4))
WEIGHTS = initial_weights(EVERYTHING, 0)


def test_equal_images_with_other_labels_are_computed_each() -> None:
    model = Model("net", "", (4,), 3, (Dense("dense", 4, 3),), 4, Optimizer(), 4)
    weights, images = initial_weights(model, 0), np.repeat(RANDOM.random((1, 4)), 3, axis=0)
    single = [loss_and_gradients(model, weights, images[:1], np.array([label])).loss for label in (0, 1, 1)]
    assert single[0] != single[1]
    assert loss_and_gradients(model, weights, images, np.array([0, 1, 1])).loss == pytest.approx(np.mean(single))


@pytest.mark.parametrize(
    ("model", "images"),
    [
        (EVERYTHING, IMAGES[0]),
        (SEQUENCES, RANDOM.integers(0, 11, (4, 7), np.int32)),
        (FEATURES, RANDOM.random((4, 5, 4))),
        (TEXT, RANDOM.integers(0, 11, (4, 7), np.int32)),
        (PATCHED, RANDOM.random((4, 3, 9, 6))),
    ],
    ids=lambda value: value.name if isinstance(value, Model) else "",
)
def test_gradients_agree_with_finite_differences(model: Model, images: np.ndarray) -> None:
    masks = dropout_masks(model, 4, 0, 0)
    labels = RANDOM.integers(0, model.classes, (4, *model.label_shape))
    weights = {name: value.astype(float) for name, value in initial_weights(model, 0).items()}
    # Values other than 0 and 1, which could hide an error.
    weights |= {name: value + 0.1 * RANDOM.random(value.shape) for name, value in weights.items()}

    def loss(changed: dict[str, np.ndarray]) -> float:
        return loss_and_gradients(model, weights | changed, images, labels, masks=masks).loss

    result = loss_and_gradients(model, weights, images, labels, masks=masks)
    assert list(result.gradients) == list(model.weight_shapes())
    assert list(result.state) == list(model.state_shapes())
    for name, gradient in result.gradients.items():
        for _ in range(3):
            direction = RANDOM.standard_normal(gradient.shape)
            direction /= np.linalg.norm(direction)
            above, below = (loss({name: weights[name] + h * direction}) for h in (1e-6, -1e-6))
            assert (above - below) / 2e-6 == pytest.approx((gradient * direction).sum(), rel=1e-5, abs=1e-8), name


@pytest.mark.parametrize("convention", [NO_DEVIATIONS, NumericalConventions(batch_norm_sums=4)])
def test_equal_images_give_the_results_of_computing_each_of_them(convention: NumericalConventions) -> None:
    rows = np.array([2, 0, 0, 1, 2, 0, 3, 0])
    masks = {name: mask[rows] for name, mask in dropout_masks(EVERYTHING, 4, 0, 0).items()}
    batch = EVERYTHING, WEIGHTS, IMAGES[0][rows], LABELS[0][rows], convention, masks
    observed: list[int] = []
    once = loss_and_gradients(*batch)
    each = loss_and_gradients(*batch, lambda tensors: observed.append(len(tensors.x)))
    assert set(observed) == {len(rows)}
    assert once.loss == pytest.approx(each.loss, rel=1e-13)
    for kind in ("gradients", "state"):
        for name, expected in getattr(each, kind).items():
            np.testing.assert_allclose(getattr(once, kind)[name], expected, rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_bias_adds_up_the_exact_gradients_of_all_positions_with_rounded_operands() -> None:
    model = Model("net", "", (5, 4), 3, (Dense("dense", 4, 3),), 4, Optimizer(), 4)
    weights, images, labels = initial_weights(model, 0), RANDOM.random((4, 5, 4)), RANDOM.integers(0, 3, (4, 5))
    exact, rounded = (
        loss_and_gradients(model, weights, images, labels, NumericalConventions(operand_bits=bits)).gradients
        for bits in (0, 30)
    )
    np.testing.assert_allclose(rounded["dense.bias"], exact["dense.bias"], rtol=1e-6)


def test_products_of_rounded_operands_leave_the_gradient_of_a_bias_exact() -> None:
    model = Model("net", "", (4,), 3, (Dense("dense", 4, 3),), 4, Optimizer(), 4)
    weights, inputs, labels = initial_weights(model, 0), RANDOM.random((4, 4)), RANDOM.integers(0, 3, 4)
    x, weight = round_bits(inputs, 4), round_bits(weights["dense.weight"], 4)
    loss, dy = cross_entropy(x @ weight.T + weights["dense.bias"], labels)
    expected = {"dense.weight": round_bits(dy, 4).T @ x, "dense.bias": dy.sum(0)}
    found = loss_and_gradients(model, weights, inputs, labels, NumericalConventions(operand_bits=4))
    assert found.loss == pytest.approx(loss, rel=1e-12)
    for name, gradient in expected.items():
        np.testing.assert_allclose(found.gradients[name], gradient, rtol=1e-9, atol=1e-15, err_msg=name)
    assert not np.allclose(round_bits(dy, 4).sum(0), dy.sum(0), rtol=1e-3)


def engine(conventions: NumericalConventions = NO_DEVIATIONS, seed: int = 0) -> ReferenceEngine:
    reference = ReferenceEngine()
    workload = Workload("everything", "noise", 4, Optimizer(), "fp32", 1)
    job = Job(EVERYTHING, workload, "cpu", "float32", conventions=conventions, seed=seed)
    reference.build(job, WEIGHTS)
    reference.load(IMAGES, LABELS)
    return reference


@pytest.mark.parametrize(("convention", "ddof"), [("unbiased", 1), ("biased", 0)])
def test_running_statistics_follow_the_declared_convention(convention, ddof: int) -> None:
    reference = engine(NumericalConventions(running_variance=convention))
    reference.run_steps(0, 1)
    state = reference.snapshot(1).weights
    # Input of the first batch norm: the first convolution, without bias, before its update.
    x, _ = conv(IMAGES[0].astype(float), WEIGHTS["conv1.weight"].astype(float), None, 1, Sides(1, 1, 1, 1))
    np.testing.assert_allclose(state["norm1.running_mean"], 0.3 * x.mean(axis=(0, 2, 3)))
    expected = 0.7 * 1 + 0.3 * x.var(axis=(0, 2, 3), ddof=ddof)
    np.testing.assert_allclose(state["norm1.running_variance"], expected)


def test_a_snapshot_changes_no_state_and_a_reset_restores_it() -> None:
    reference = engine()
    reference.snapshot(0)
    reference.run_steps(0, 2)
    trained = reference.snapshot(2)
    assert list(trained.weights) == list(EVERYTHING.tensor_shapes())
    assert list(trained.gradients) == list(EVERYTHING.weight_shapes())
    reference.reset()
    reference.run_steps(0, 2)
    for name, value in reference.snapshot(2).weights.items():
        np.testing.assert_array_equal(value, trained.weights[name])


def test_dropout_masks_depend_on_seed_and_step_but_not_on_the_batch() -> None:
    losses = {engine(seed=seed).snapshot(step).loss for seed in (0, 1) for step in (0, 2)}
    assert len(losses) == 4  # steps 0 and 2 have the same batch


def test_equal_images_with_other_dropout_masks_are_computed_each() -> None:
    model = Model("net", "", (4,), 3, (Dropout("dropout", 0.5), Dense("dense", 4, 3)), 4, Optimizer(), 4)
    weights, images = initial_weights(model, 0), np.repeat(RANDOM.random((1, 4)), 2, axis=0)
    labels, masks = np.array([0, 0]), np.array([[2.0, 0, 0, 2], [0, 2, 2, 0]])
    single = [
        loss_and_gradients(model, weights, images[:1], labels[:1], masks={"dropout": masks[[row]]}).loss
        for row in (0, 1)
    ]
    assert single[0] != single[1]
    both = loss_and_gradients(model, weights, images, labels, masks={"dropout": masks}).loss
    assert both == pytest.approx(np.mean(single))
