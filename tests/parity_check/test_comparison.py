"""Tests of the errors of compared tensors."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from polybench.data.batch_files import open_epoch
from polybench.engines.job import NumericalConventions
from polybench.errors import ConfigurationFailed
from polybench.networks.layers import Dense
from polybench.networks.model import Model
from polybench.networks.optimizers import OPTIMIZERS, Array, Optimizer, apply_update
from polybench.networks.optimizers import State as OptimizerState
from polybench.parity_check.comparison import (
    ROUNDING_FACTOR,
    ExpectedUpdate,
    State,
    allow_for_rounding,
    batch_errors,
    evaluation_errors,
    find_zero_gradients,
    float32_errors,
    float64_errors,
    float64_tolerance,
    known_deviations,
    largest_errors,
    largest_failure,
    loss_error,
    max_drift,
    statistics_errors,
    timed_errors,
    timed_tolerance,
    vary_constants,
    write_chosen_labels,
)
from polybench.protocol.calls import Evaluated
from polybench.schema.parity import KnownDeviation, PrecisionResult, TensorComparison
from tests import small_datasets
from tests.example_networks import BIASED
from tests.factories import WORKLOAD

TOLERANCE = {"loss": 1e-2, "gradient": 1e-2, "size": 1e-2, "tensor size": 1e-2, "weight": 1e-6}


def whole_gradient_errors(actual: list[float], expected: list[float]) -> dict[str, float | None]:
    """Return the errors of direction ("gradient") and size."""
    with tempfile.TemporaryDirectory() as name:
        states = []
        for file, values in (("actual", actual), ("expected", expected)):
            path = Path(name) / f"{file}.npz"
            np.savez(path, tensor=np.array(values))
            states.append(State(1.0, path, path))
        _, *errors = timed_errors("bf16", 0, *states, TOLERANCE)
    return {error.kind: error.relative_error for error in errors if error.name == "whole gradient"}


values = st.lists(st.floats(0.01, 10), min_size=3, max_size=3)


@given(values, st.floats(0.1, 10))
@example([1.0, 1.0, 8.532254765903293], 3.0)
def test_scaled_gradient_has_the_same_direction_and_another_size(gradient: list[float], factor: float) -> None:
    errors = whole_gradient_errors([factor * value for value in gradient], gradient)
    direction = errors["gradient"]
    assert direction is not None
    assert 0 <= direction < 1e-15
    assert errors["size"] == pytest.approx(abs(factor - 1), abs=1e-12)


def test_error_of_an_undefined_direction_is_none() -> None:
    assert whole_gradient_errors([float("nan"), 1.0], [1.0, 1.0]) == {"gradient": None, "size": None}
    assert whole_gradient_errors([0.0, 0.0], [1.0, 1.0]) == {"gradient": None, "size": 1}
    assert whole_gradient_errors([1.0, 1.0], [0.0, 0.0]) == {"gradient": None, "size": None}
    assert whole_gradient_errors([float("inf"), 1.0], [1.0, 1.0]) == {"gradient": None, "size": None}


def test_rounding_cannot_change_the_count_of_correct_predictions(tmp_path: Path) -> None:
    logits = np.tile([0.1, 1.0, 0.2], (16, 1))
    logits[::4] = [0.1, 1.0, 0.999]
    logits[7] *= 1e-3  # clear relative to its own largest logit
    np.savez(tmp_path / "logits.npz", logits=logits)
    epoch = small_datasets.files(tmp_path).epoch
    labelled = write_chosen_labels(epoch, tmp_path / "logits.npz", tmp_path / "chosen")
    labels = np.fromfile(tmp_path / "chosen", np.int64)
    assert (labelled.steps, labelled.batch_size) == (1, 16)
    assert set(labels[::4]) == {0}
    rounded = np.where(np.arange(16) % 4 == 0, 2, 1)
    assert list(labels) == [1 if image % 4 and image % 3 else 0 for image in range(16)]
    for predicted, passes in ((rounded, True), (np.where(np.arange(16) == 1, 0, rounded), False)):
        evaluated = Evaluated(float((predicted == labels).mean()), None)
        error, _ = evaluation_errors(tmp_path / "logits.npz", labelled, evaluated, 1e-5)
        assert error == TensorComparison("timed", "predictions", 0, "correct", 0 if passes else 1 / 16, 0.5 / 16)


def test_two_close_logits_can_be_right_or_wrong(tmp_path: Path) -> None:
    """With two classes, the label of a doubtful image is one of the two that rounding can choose."""
    np.savez(tmp_path / "logits.npz", logits=np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.96], [0.0, -1.0]]))
    epoch = small_datasets.files(tmp_path).epoch
    labelled = write_chosen_labels(epoch, tmp_path / "logits.npz", tmp_path / "chosen")
    assert list(np.fromfile(tmp_path / "chosen", np.int64)) == [0, 0, 1, 1]
    error, _ = evaluation_errors(tmp_path / "logits.npz", labelled, Evaluated(0.5, None), 1e-5)
    assert (error.relative_error, error.tolerance) == (0.25, 1.5 / 4)


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1.001, False), (None, False)])
def test_the_loss_of_an_evaluation_is_that_of_the_reference(factor: float | None, passes: bool, tmp_path: Path) -> None:
    """Two positions of two sequences, of three classes."""
    np.savez(tmp_path / "logits.npz", logits=np.array([[[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]]] * 2))
    labelled = write_chosen_labels(small_datasets.files(tmp_path).epoch, tmp_path / "logits.npz", tmp_path / "chosen")
    losses = -np.log(np.array([softmax(0, 1, 2)[0], softmax(3, 0, 0)[0], softmax(0, 1, 2)[2], softmax(3, 0, 0)[1]]))
    loss = None if factor is None else factor * float(losses.mean())
    _, error = evaluation_errors(tmp_path / "logits.npz", labelled, Evaluated(0.5, loss), 1e-5)
    assert (error.name, error.passed) == ("loss in evaluation", passes)


def softmax(*logits: float) -> list[float]:
    return list(np.exp(logits) / np.exp(logits).sum())


def test_a_pixel_may_differ_by_a_rounding_but_not_by_a_grey_level(tmp_path: Path) -> None:
    epoch = small_datasets.files(tmp_path).epoch
    images, labels = (array[0].copy() for array in open_epoch(epoch))
    actual = tmp_path / "batch.npz"

    def passed() -> list[bool]:
        np.savez(actual, images=images, labels=labels)
        return [one.passed for one in batch_errors(0, actual, epoch)]

    images[3, 2, 1, 0] = np.nextafter(images[3, 2, 1, 0], 2)
    assert passed() == [True, True]
    images[3, 2, 1, 0] += 1 / 255
    labels[7] += 1
    assert passed() == [False, False]
    _, wrong_labels = batch_errors(0, actual, epoch)
    assert wrong_labels.relative_error == 1 / len(labels)
    images[0] = np.nan
    np.savez(actual, images=images, labels=labels)
    assert [one.relative_error for one in batch_errors(0, actual, epoch)] == [None, 1 / len(labels)]
    np.savez(actual, images=images[1:], labels=labels)
    with pytest.raises(ConfigurationFailed, match=r"^batch 0: expected images of shape .* pipeline delivered \("):
        list(batch_errors(0, actual, epoch))


def write_gradients(folder: Path, name: str, **gradients: list[float]) -> Path:
    arrays: dict[str, Any] = {tensor: np.array(values) for tensor, values in gradients.items()}
    np.savez(folder / name, **arrays)
    return folder / f"{name}.npz"


def test_gradient_within_its_tolerance_in_every_file_is_zero(tmp_path: Path) -> None:
    first = write_gradients(tmp_path, "first", w=[3.0, 4.0], bias=[1e-13, 0.0], dead=[0.0], small=[1e-9])
    second = write_gradients(tmp_path, "second", w=[0.3, 0.4], bias=[0.0, 1e-15], dead=[1e-3], small=[1e-9])
    assert find_zero_gradients([first, second], 1e-7) == {"bias"}
    assert find_zero_gradients([first], 1e-7) == {"bias", "dead"}
    assert find_zero_gradients([first, second], 1e-10) == set()
    assert find_zero_gradients([], 1e-7) == set()
    assert find_zero_gradients([write_gradients(tmp_path, "zero", w=[0.0])], 1e-7) == {"w"}


def saved(folder: Path, name: str, loss: float, gradients: dict[str, Any], weights: dict[str, Any]) -> State:
    files = [folder / f"{name}_{kind}.npz" for kind in ("gradients", "weights")]
    for file, tensors in zip(files, (gradients, weights), strict=True):
        np.savez(file, **{tensor: np.array(values) for tensor, values in tensors.items()})
    return State(loss, *files)


def rows(errors: Iterable[TensorComparison]) -> list[tuple[Any, ...]]:
    return [(one.part, one.name, one.step, one.kind, pytest.approx(one.relative_error)) for one in errors]


# All gradients together have the norm 5, so errors of gradients are relative to 5e-6 at least.
GRADIENTS = {"w": [3.0, 4.0], "bias": [0.0, 0.0, 0.0, 0.0]}
SGD = Optimizer("sgd", 0.1)


@pytest.mark.parametrize(("zero", "drifted"), [(("bias",), 0.5), ((), 2.0)])
def test_float64_errors_are_relative_to_the_tensor_or_to_all_gradients(
    zero: tuple[str, ...], drifted: float, tmp_path: Path
) -> None:
    zeros = {"bias": [0.0] * 4, "norm.running_mean": [0.0], "norm.running_variance": [0.0]}
    expected = saved(tmp_path, "expected", 2.0, GRADIENTS, {"w": [6.0, 8.0], **zeros})
    gradients = {"w": [3.0, 4.5], "bias": [1e-6, 0.0, 0.0, 0.0]}
    weights = {"bias": [1e-5, 0.0, 0.0, 0.0], "norm.running_mean": [1e-5], "norm.running_variance": [1e-6]}
    actual = saved(tmp_path, "actual", 2.5, gradients, {"w": [6.0, 9.0], **weights})
    tolerance = {"loss": 0.3, "gradient": 1e-2, "weight": 1e-3}
    found = list(float64_errors(range(2), actual, expected, tolerance, SGD, zero))
    assert rows(found) == [
        ("float64", "loss", 2, "loss", 0.25),
        ("float64", "w", 2, "gradient", 0.1),
        ("float64", "bias", 2, "gradient", 0.2),
        ("float64", "w", 2, "weight", 0.1),
        # Two steps of 2 x 0.1 x 5e-8, the rounding error of a zero gradient, over the tolerance: 2e-5, else 5e-6.
        ("float64", "bias", 2, "weight", drifted),
        ("float64", "norm.running_mean", 2, "weight", drifted),
        ("float64", "norm.running_variance", 2, "weight", 0.2),
    ]
    assert [one.tolerance for one in found] == [0.3, 1e-2, 1e-2, *[1e-3] * 4]


@pytest.mark.parametrize(("zero", "error"), [(("bias",), 0.8), ((), 200.0)])
def test_timed_errors_in_fp32_are_those_of_each_gradient_and_of_their_size(
    zero: tuple[str, ...], error: float, tmp_path: Path
) -> None:
    expected = saved(tmp_path, "expected", 2.0, GRADIENTS, {"mean": [0.4], "variance": [0.0]})
    gradients = {"w": [3.0, 4.5], "bias": [1e-3, 0.0, 0.0, 0.0]}
    actual = saved(tmp_path, "actual", 2.5, gradients, {"mean": [0.5], "variance": [0.0]})
    tolerance = {"loss": 0.3, "gradient": 0.2, "size": 0.1, "tensor size": 0.05}
    found = list(timed_errors("fp32", 0, actual, expected, tolerance, zero))
    assert rows(found) == [
        ("timed", "loss", 0, "loss", 0.25),
        ("timed", "w", 0, "size", 27 / 25 - 1),  # 3 x 3 + 4 x 4.5 over 3 x 3 + 4 x 4
        ("timed", "w", 0, "gradient", 0.1),
        ("timed", "bias", 0, "gradient", error),
        ("timed", "whole gradient", 0, "size", 27 / 25 - 1),
    ]
    assert [one.tolerance for one in found] == [0.3, 0.05, 0.2, 0.2, 0.1]
    later = timed_errors("fp32", 1, actual, expected, tolerance, zero)  # switches of a ReLU change a tensor's size
    assert [one.name for one in later if one.kind == "size"] == ["whole gradient"]
    statistics = list(statistics_errors("fp32", 3, actual.weights, expected.weights, 0.1))
    assert rows(statistics) == [("timed", "mean", 3, "statistic", 0.25), ("timed", "variance", 3, "statistic", 0.0)]
    assert {one.tolerance for one in statistics} == {0.1}
    assert loss_error("loss", 1, None, 2.0, 0.3).relative_error is None


@pytest.mark.parametrize(("precision", "floor"), [("fp32", 1e-2), ("tf32", 0.5), ("bf16", 1.0)])
def test_a_running_mean_of_zero_is_compared_with_the_standard_deviation(
    precision: str, floor: float, tmp_path: Path
) -> None:
    variance = {"norm.running_variance": [9.0, 16.0]}
    expected = saved(tmp_path, "expected", 2.0, GRADIENTS, {"norm.running_mean": [0.0, 1e-9]} | variance)
    actual = saved(tmp_path, "actual", 2.0, GRADIENTS, {"norm.running_mean": [1e-6, 1e-9]} | variance)
    mean, same = statistics_errors(precision, 1, actual.weights, expected.weights, 0.1)
    assert mean.relative_error == pytest.approx(1e-6 / (5 * floor))
    assert same.relative_error == 0


LINE = Model("line", "", (2,), 1, (Dense("line", 2, 1),), 4, Optimizer(), 4)


@pytest.mark.parametrize(("zero", "error"), [(("line.bias",), 4e-3), ((), 1e4)])
def test_updates_are_compared_relative_to_the_update(zero: tuple[str, ...], error: float, tmp_path: Path) -> None:
    tolerance = {"gradient": 5e-2, "weight": 1e-6}
    update = ExpectedUpdate(LINE, SGD, tmp_path / "expected", tolerance, zero)
    gradients = {"line.weight": [3.0, 4.0], "line.bias": [0.0]}
    more = {"statistic": [1.0]}  # not a weight
    before = saved(tmp_path, "before", 1.0, gradients, {"line.weight": [0.3, 0.4], "line.bias": [0.0]} | more)
    update.apply(0, before, before)
    after = saved(tmp_path, "after", 1.0, gradients, {"line.weight": [0.05, 0.0], "line.bias": [0.05]} | more)
    found = list(update.errors(1, after.weights))
    assert rows(found) == [
        # The expected weights are 0, so 1e-4 of the update 0.5 may be wrong: 50 times the tolerance.
        ("timed", "line.weight", 1, "weight", 0.05 / 50),
        # A zero gradient's rounding error is 5e-2 x 2.5e-4 x 5, twice 0.1 of it the update, over the tolerance 12.5.
        ("timed", "line.bias", 1, "weight", error),
    ]
    assert {one.tolerance for one in found} == {1e-6}


def test_an_update_continues_from_the_optimizers_state(tmp_path: Path) -> None:
    optimizer = Optimizer("momentum", 0.1, lr_schedule=((1, 0.2),))
    update = ExpectedUpdate(LINE, optimizer, tmp_path / "expected", TOLERANCE, ())
    gradients = {"line.weight": [1.0, 0.0], "line.bias": [0.0]}
    weights = [
        saved(tmp_path, str(w), 1.0, gradients, {"line.weight": [w, 0.0], "line.bias": [1.0]}) for w in (1, 2, 3)
    ]
    update.apply(0, weights[0], weights[0])
    update.apply(1, weights[1], weights[1])
    # The velocity is 0.9 x 1 + 1 after the second step, which has another rate: 2 - 0.2 x 1.9 = 1.62.
    found, _ = update.errors(2, weights[2].weights)
    assert (found.kind, found.relative_error) == ("schedule", pytest.approx((3 - 1.62) / (0.38 * 100)))


def test_adam_makes_a_full_update_of_a_rounding(tmp_path: Path) -> None:
    weights = {"line.weight": [0.0, 0.0], "line.bias": [0.0]}
    gradients = {"line.weight": [1.0, 1e-5], "line.bias": [1.0]}
    exact = {"line.weight": [1.0 + 1e-6, -1e-4], "line.bias": [1.0 + 1e-6]}
    state, reference = (saved(tmp_path, name, 1.0, one, weights) for name, one in (("a", gradients), ("b", exact)))
    update = ExpectedUpdate(LINE, Optimizer("adam", 0.1), tmp_path / "adam", TOLERANCE, ())
    for step in range(2):
        update.apply(step, state, reference)
        errors = update.rounding_errors()
        # The tiny gradient has another sign, so the updates are 0.1 and -0.1, in both steps. The scale is the update.
        assert errors["line.weight"] == pytest.approx(0.2 / (100 * math.hypot(0.1, 0.1)), rel=0.01)
        assert errors["line.bias"] < 1e-6
    update = ExpectedUpdate(LINE, SGD, tmp_path / "sgd", TOLERANCE, ())
    update.apply(0, state, reference)
    assert update.rounding_errors() == {}


@pytest.mark.parametrize(
    ("gradients", "returned"),
    [({"w": [3.0, 4.0]}, "no such tensor"), ({"w": [3.0, 4.0], "bias": [0.0]}, r"shape \(1,\)")],
)
def test_snapshots_without_a_tensor_fail(gradients: dict[str, Any], returned: str, tmp_path: Path) -> None:
    expected, actual = (saved(tmp_path, name, 1.0, one, {}) for name, one in (("a", GRADIENTS), ("b", gradients)))
    message = rf"^snapshot: expected bias of shape \(4,\), but the engine returned {returned}$"
    with pytest.raises(ConfigurationFailed, match=message):
        list(timed_errors("fp32", 0, actual, expected, TOLERANCE))


def test_tolerances_grow_with_what_float32_moves(tmp_path: Path) -> None:
    states = {}
    for name, cancelling, variance in (("expected", 1e-3, 1.0), ("rounded", 1.2e-3, 1.1), ("actual", 1.7e-3, 1.3)):
        (folder := tmp_path / name).mkdir()
        np.savez(folder / "g.npz", cancelling=np.array([cancelling]), other=np.array([1.0]))
        np.savez(folder / "w.npz", running_variance=np.array([variance]))
        states[name] = State(1.0, folder / "g.npz", folder / "w.npz")
    comparisons = list(timed_errors("fp32", 0, states["actual"], states["expected"], TOLERANCE))
    comparisons += statistics_errors("fp32", 1, states["actual"].weights, states["expected"].weights, 1e-4)
    comparisons += [
        TensorComparison("timed", name, 1, kind, 0.1, 1e-6)
        for name, kind in (("cancelling", "weight"), ("late", "schedule"))
    ]
    moved = float32_errors(0, states["rounded"], states["expected"])
    assert moved["cancelling"] == pytest.approx(0.2)
    allowed = allow_for_rounding(comparisons, moved, {"cancelling": 1e-2, "late": 2e-2})
    widened = {(one.name, one.kind): one.tolerance for one in allowed if one not in comparisons}
    assert widened == {
        ("cancelling", "gradient"): pytest.approx(ROUNDING_FACTOR * 0.2),
        ("cancelling", "size"): pytest.approx(ROUNDING_FACTOR * 0.2),
        ("running_variance", "statistic"): pytest.approx(ROUNDING_FACTOR * 0.1),
        ("cancelling", "weight"): pytest.approx(ROUNDING_FACTOR * 1e-2),
        ("late", "schedule"): pytest.approx(ROUNDING_FACTOR * 2e-2),
    }
    assert [one.kind for one in allowed if not one.passed] == ["weight", "schedule"]


def test_known_deviations_are_those_of_one_declared_rule(tmp_path: Path) -> None:
    exact = saved(tmp_path, "exact", 1.0, GRADIENTS, {"running_mean": [2.0], "n.running_variance": [2.0]})
    gradients = {"w": [3.0, 4.5], "bias": [1e-3, 0.0, 0.0, 0.0]}
    declared = saved(tmp_path, "declared", 1.0, gradients, {"running_mean": [3.0], "n.running_variance": [2.5]})
    biased = NumericalConventions(running_variance="biased", sources={"running_variance": "here"})
    rule = "batch norm divides the batch's variance by n instead of n - 1 in its running variance"
    assert known_deviations(biased, declared, exact, ()) == [KnownDeviation(rule, "n.running_variance", 0.25, "here")]
    relu = NumericalConventions(relu_at_zero=0.5, sources={"relu_at_zero": "there"})
    rule = "the derivative of ReLU at 0 is 0.5"
    assert known_deviations(relu, declared, exact, ["bias"]) == [
        KnownDeviation(rule, "w", pytest.approx(0.1), "there"),
        KnownDeviation(rule, "bias", pytest.approx(0.8), "there"),
    ]


def compared(kind: Any, error: float | None, tolerance: float) -> TensorComparison:
    return TensorComparison("timed", "conv", 1, kind, error, tolerance)


def test_the_summary_of_comparisons_names_the_largest() -> None:
    passed, small = compared("loss", 0.3, 0.3), compared("weight", 0.05, 0.01)
    relative, infinite = compared("loss", 0.02, 1e-3), compared("gradient", None, 0.1)
    assert largest_failure([passed]) is None
    assert largest_failure([passed, small, relative]) == (
        "timed, step 1: the loss differs from the reference's: loss error of conv is 0.02 (tolerance 0.001);"
        " 2 of 3 comparisons failed"
    )
    found = largest_failure([relative, infinite])
    assert found is not None
    assert "gradient error of conv is not finite (tolerance 0.1)" in found
    assert largest_errors([passed, relative, small, infinite], {"loss": 1}) == PrecisionResult(
        0.3, None, 0.05, {"loss": 1}
    )
    assert largest_errors([], {"logits": 1}) == PrecisionResult(None, None, None, {"logits": 1})


def test_tolerances_allow_for_batch_norm_and_adam() -> None:
    def tolerances(model: Model, precision: Any = "fp32", optimizer: Any = "sgd") -> tuple[float, float]:
        workload = msgspec.structs.replace(WORKLOAD, precision=precision, optimizer=Optimizer(optimizer))
        found = timed_tolerance(model, workload)
        return found["loss"], found["weight"]

    assert (tolerances(LINE), tolerances(LINE, optimizer="adam")) == ((1e-5, 1e-6), (1e-5, 1e-5))
    assert (tolerances(BIASED), tolerances(BIASED, "bf16"), tolerances(LINE, "bf16")) == (
        (1e-4, 1e-6),
        (2e-2, 1e-6),
        (2e-2, 1e-6),
    )
    assert [float64_tolerance(model, WORKLOAD)["weight"] for model in (LINE, BIASED)] == [1e-9, 1e-7]


def weights_after_steps(optimizer: Optimizer, gradients: list[Array]) -> Array:
    """Return the weights after each step of an optimizer that starts from zero."""
    w, weights = np.zeros(gradients[0].shape), []
    state: OptimizerState = {}
    for step, gradient in enumerate(gradients):
        w, state = apply_update(optimizer, optimizer.learning_rate_at(step), w, gradient, state)
        weights.append(w)
    return np.array(weights)


@given(
    name=st.sampled_from(sorted(OPTIMIZERS)),
    error=st.floats(-16, 0).map(lambda exponent: 10**exponent),
    size=st.integers(1, 6),
    steps=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_rounding_errors_never_exceed_the_maximum_drift(
    name: Any, error: float, size: int, steps: int, seed: int
) -> None:
    random = np.random.default_rng(seed)

    def rounding() -> Array:
        noise = random.standard_normal(size) ** 3  # a few values dominate
        return np.asarray(error * noise / np.linalg.norm(noise))

    optimizer = Optimizer(name, 0.01)
    first, second = (weights_after_steps(optimizer, [rounding() for _ in range(steps)]) for _ in range(2))
    drift = max_drift(optimizer, [0.01] * steps, error, size)
    assert len(drift) == steps
    assert np.linalg.norm(first[-1] - second[-1]) <= sum(drift) * (1 + 1e-9)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_opposite_errors_reach_the_maximum_drift(name: Any) -> None:
    optimizer = Optimizer(name, 0.01)
    error = np.full(4, 0.5e-9)
    first, second = (weights_after_steps(optimizer, [sign * error] * 3) for sign in (1, -1))
    assert np.linalg.norm(first[-1] - second[-1]) == pytest.approx(sum(max_drift(optimizer, [0.01] * 3, 1e-9, 4)))


def test_drift_with_adam_is_limited_by_the_learning_rate() -> None:
    adam = Optimizer("adam", 0.01)
    assert max(max_drift(adam, [0.01] * 3, 1.0, 1)) == pytest.approx(2 * 0.01, rel=1e-6)
    assert max(max_drift(adam, [0.01] * 3, 1e-15, 1)) == pytest.approx(2 * 0.01 * 1e-15 / 1e-8, rel=1e-6)


def test_only_constant_tensors_vary() -> None:
    """Otherwise an engine that ignores initial biases and running statistics would compute the same."""
    weights = {"zeros": np.zeros(4), "ones": np.ones(3, np.float32), "drawn": np.array([0.1, -0.2])}
    varied = vary_constants(weights)
    assert varied["drawn"] is weights["drawn"]
    for name in ("zeros", "ones"):
        assert (varied[name].dtype, np.ptp(varied[name]) > 0) == (weights[name].dtype, True)
        assert np.abs(varied[name] - weights[name]).max() <= 0.5


def test_the_loss_in_training_may_differ_as_much_as_that_of_a_snapshot(tmp_path: Path) -> None:
    expected, rounded = (saved(tmp_path, name, loss, GRADIENTS, {}) for name, loss in (("a", 2.0), ("b", 2.2)))
    losses = [loss_error(name, 0, 2.4, 2.0, 1e-6) for name in ("loss", "loss in training")]
    allowed = allow_for_rounding(losses, float32_errors(0, rounded, expected), {})
    assert [one.tolerance for one in allowed] == [pytest.approx(ROUNDING_FACTOR * 0.1)] * 2
