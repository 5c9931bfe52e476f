"""Causes of small recorded trainings, and the evidence in their sentences."""

from __future__ import annotations

from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import polybench
from polybench.schema.trace import FirstDifference, TraceDiffDocument
from polybench.trace.causes import _active_dropout, _known_digits
from polybench.trace.diff import diff
from polybench.trace.file import Trace
from polybench.trace.verdict import _difference
from tests.trace.numpy_program import ROWS, Plants, clip_all, clip_each, clip_values, train


@pytest.mark.parametrize(
    ("n", "error", "text"),
    [
        (1024.02, 0.1, "1024"),
        (1027.3, 4.0, "about 1030"),
        (1027.3, 40.0, "about 1000"),
        (32.0001, 0.49, "32"),
        (63.7, 0.6, "about 60"),
    ],
)
def test_a_fitted_size_has_only_the_digits_that_are_known(n: float, error: float, text: str) -> None:
    assert _known_digits(n, error) == text


def compare(folder: Path, a: Plants, b: Plants, steps: tuple[int, ...] = (0, 1, 2)) -> TraceDiffDocument:
    return diff(train(folder / "a", a, steps), train(folder / "b", b, steps))


def causes(document: TraceDiffDocument) -> list[str]:
    return [one.cause for one in document.causes]


@pytest.mark.parametrize("shape", [(ROWS,), (ROWS, 1), (ROWS, 1, 1)])
def test_a_penalty_is_named_with_targets_of_any_shape_of_one_column(shape: tuple[int, ...], tmp_path: Path) -> None:
    document = compare(tmp_path, Plants(), Plants(shape=shape, penalty=0.01))
    assert causes(document) == ["B's loss has a penalty of 0.01 times the squares of hidden.weight"]
    assert document.first_difference is not None
    assert document.first_difference.kind == "loss"


@pytest.mark.parametrize("which", ["A", "B"])
def test_a_sum_is_told_from_the_mean(which: str, tmp_path: Path) -> None:
    a, b = (Plants(is_sum=which == name) for name in "AB")
    other = "B" if which == "A" else "A"
    (cause,) = causes(compare(tmp_path, a, b, steps=(0,)))
    assert cause == f"{which} adds up the loss over the batch (32 predictions), {other} computes its mean"


def test_a_factor_is_not_clipping_to_a_norm_that_nobody_chooses(tmp_path: Path) -> None:
    """The norm is nearly that of a limit of 0.5, but not to rounding."""
    with Trace(train(tmp_path / "a", Plants(), (0,))) as trace:
        norm = np.sqrt(sum(float((one**2).sum()) for one in trace.tensors(0, "gradient").values()))
    scale = 0.50025 / float(norm)
    assert scale < 1
    (cause,) = causes(compare(tmp_path, Plants(), Plants(scale=scale), steps=(0,)))
    assert cause.startswith("B scales its gradients by 0.")


@pytest.mark.parametrize("which", ["A", "B"])
def test_the_training_with_fewer_significant_bits_is_named(which: str, tmp_path: Path) -> None:
    rounded = Plants(clip=lambda gradients: {name: one.astype("f2").astype("f4") for name, one in gradients.items()})
    a, b = (rounded if name == which else Plants() for name in "AB")
    assert f"{which} computes in float16" in causes(compare(tmp_path, a, b, steps=(0,)))


@pytest.mark.parametrize(
    ("settings", "is_active"),
    [
        ("p=0.5, inplace=False, training=True", True),
        ("p=0.5, inplace=False, training=False", False),
        ("p=0.0, inplace=False, training=True", False),
        ("{'rate': 0.05}", True),
        ("{'rate': 0.0}", False),
    ],
)
def test_dropout_is_active_by_its_rate_and_mode(settings: str, is_active: bool) -> None:
    layers = [("conv", "Conv2d", "p=0.5, training=True"), ("drop", "Dropout", settings)]
    trace: Any = SimpleNamespace(header=SimpleNamespace(layers=layers))
    assert _active_dropout(trace) == ["drop"] * is_active


def test_weights_part_after_the_last_recorded_step_before_they_differ() -> None:
    first = FirstDifference(9, "weight", "hidden.weight", 0.25)
    words = "step 9: the weights differ by 0.25, most in hidden.weight; they part after step 2"
    assert _difference(first, [], [0, 1, 2, 9, 10]) == words


COLUMN, ROW = Plants(shape=(ROWS, 1)), Plants(shape=(ROWS,))
PAIRS = "subtracts each target from each prediction:"


@pytest.mark.parametrize(
    ("a", "b", "cause"),
    [
        (ROW, COLUMN._replace(is_broadcast=True), f"B {PAIRS} targets (32, 1) and predictions (32,)"),
        (COLUMN, ROW._replace(is_broadcast=True), f"B {PAIRS} targets (32,) and predictions (32, 1)"),
        (COLUMN._replace(is_broadcast=True), COLUMN, f"A {PAIRS} targets (32, 1) and predictions (32,)"),
        (ROW._replace(scale=0.5), ROW._replace(scale=0.5, is_broadcast=True), f"B {PAIRS} targets (32,)"),
        (ROW._replace(is_sum=True), ROW._replace(is_sum=True, is_broadcast=True), f"B {PAIRS} targets (32,)"),
    ],
)
def test_targets_that_are_broadcast_are_named(a: Plants, b: Plants, cause: str, tmp_path: Path) -> None:
    (found,) = causes(compare(tmp_path, a._replace(rate=1e-3), b._replace(rate=1e-3)))
    assert found == f"{cause}{'' if 'predictions' in cause else ' and predictions (32, 1)'} broadcast to (32, 32)"


@pytest.mark.parametrize(
    "b", [Plants(), Plants(shape=(ROWS,)), Plants(penalty=0.01), Plants(scale=0.5), Plants(is_sum=True), Plants(rate=1)]
)
def test_other_losses_are_not_broadcasts(b: Plants, tmp_path: Path) -> None:
    assert not [one for one in causes(compare(tmp_path, Plants(), b)) if PAIRS in one]


MEAN = Plants(records=mean)
MEANS = "records the mean loss of its epoch so far, not the loss of the batch"
EPOCH_OF_TWO = Plants(records=lambda losses: mean(losses[len(losses) - 1 & ~1 :]))


@pytest.mark.parametrize(
    ("a", "b", "which", "step"),
    [
        (Plants(), MEAN, "B", 1),
        (MEAN, Plants(), "A", 1),
        (Plants(), EPOCH_OF_TWO, "B", 1),
        (Plants(clip=clip_all(0.5)), MEAN._replace(clip=clip_all(0.5)), "B", 1),
    ],
)
def test_a_mean_of_the_epoch_is_named(a: Plants, b: Plants, which: str, step: int, tmp_path: Path) -> None:
    document = compare(tmp_path, a, b)
    assert causes(document) == [f"{which} {MEANS}"]
    assert document.first_difference is not None
    assert (document.first_difference.step, document.first_difference.kind) == (step, "loss")


@pytest.mark.parametrize(
    "b",
    [
        MEAN._replace(rate=0.1),  # the weights differ before the losses do
        Plants(records=lambda losses: losses[0]),
        Plants(records=lambda losses: 0.9 * losses[-1] + 0.1 * losses[0]),
    ],
)
def test_other_recorded_losses_are_not_means(b: Plants, tmp_path: Path) -> None:
    assert not [one for one in causes(compare(tmp_path, Plants(), b)) if MEANS in one]


ALL, EACH, VALUE = clip_all(0.5), clip_each(0.25), clip_values(0.01)


@pytest.mark.parametrize(
    ("a", "b", "words"),
    [
        (Plants(clip=ALL), Plants(clip_in_optimizer=ALL), "their gradients to the norm 0.5"),
        (Plants(clip_in_optimizer=ALL), Plants(clip=ALL), "their gradients to the norm 0.5"),
        (Plants(clip=EACH), Plants(clip_in_optimizer=EACH), "the gradient of each tensor to the norm 0.25"),
        (Plants(clip=VALUE), Plants(clip_in_optimizer=VALUE), "each value of their gradients to 0.01"),
    ],
)
def test_equal_clipping_is_one_sentence(a: Plants, b: Plants, words: str, tmp_path: Path) -> None:
    (found,) = compare(tmp_path, a, b).causes
    first, second = ("A", "B") if a.clip is not Plants().clip else ("B", "A")
    assert found.cause == f"both clip {words}, {first} before the recording and {second} in its optimizer"
    assert found.is_convention


@pytest.mark.parametrize(
    ("a", "b", "cause"),
    [
        (Plants(), Plants(clip=ALL), "B clips its gradients to the norm 0.5"),
        (Plants(), Plants(clip=EACH), "B clips the gradient of each tensor to the norm 0.25"),
        (Plants(clip=VALUE), Plants(), "A clips each value of its gradients to 0.01"),
        (
            Plants(),
            Plants(clip_in_optimizer=EACH),
            "the gradient clipping is 0.25 for the norm of each tensor in B, and none in A",
        ),
        (Plants(), Plants(clip_in_optimizer=VALUE), "the gradient clipping is 0.01 for each value in B, and none in A"),
        (
            Plants(clip=ALL),
            Plants(clip_in_optimizer=clip_each(0.5)),
            "A clips its gradients to the norm 0.5 before the recording,"
            " B clips the gradient of each tensor to the norm 0.5 in its optimizer",
        ),
    ],
)
def test_each_form_of_clipping_is_told_apart(a: Plants, b: Plants, cause: str, tmp_path: Path) -> None:
    assert causes(compare(tmp_path, a, b)) == [cause]


def test_a_clipping_and_a_learning_rate_are_both_named(tmp_path: Path) -> None:
    a, b = Plants(clip=ALL), Plants(clip_in_optimizer=ALL, rate=0.1)
    rate, both = causes(compare(tmp_path, a, b))
    assert rate.startswith("the learning rate is 0.1 in B, and 0.0")
    assert both.startswith("both clip")


def test_a_training_that_never_updates_has_no_rule(tmp_path: Path) -> None:
    found = causes(compare(tmp_path, Plants(), Plants(rate=0.0)))
    assert found == [f"B does not update {name}" for name in ("hidden.weight", "output.weight", "output.bias")]


def test_a_factor_of_one_number_is_not_a_cause(tmp_path: Path) -> None:
    files = []

    for name, slope in (("a", 0.7), ("b", 0.4)):
        weights = {"w": np.full(1, 0.3, "f4")}
        with polybench.record(tmp_path / name, model=weights, steps=(0,)) as trace:
            gradients = {"w": np.full(1, slope, "f4")}
            trace.step(loss=slope, batch=(np.ones(4), np.ones(4)), gradients=gradients, weights=weights)
        files.append(tmp_path / name)
    assert causes(diff(*files)) == []
