"""Batches of two traces: what means the same is the same, and no cause fits by chance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polybench
from polybench.trace.batches import Inputs, compare_inputs, decode_labels
from polybench.trace.file import Array, Trace

RANDOM = np.random.default_rng(0)
CLASSES = RANDOM.integers(0, 5, 32)
FLOATS = RANDOM.normal(size=32).astype("f4")
IMAGES = RANDOM.normal(size=(8, 3, 6, 6)).astype("f4")
GRAY = IMAGES[:, 0]
ONE_HOT = np.eye(5, dtype="f4")[CLASSES]


def compare(a: Array, b: Array, folder: Path) -> Inputs:
    for name, tensor in (("a", a), ("b", b)):
        weights = {"w": np.ones(3, "f4")}
        with polybench.record(folder / name, model=weights, steps=(0,)) as trace:
            trace.step(loss=1.0, batch=(tensor,), weights=weights)
    with Trace(folder / "a") as one, Trace(folder / "b") as other:
        return compare_inputs(one, other)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (CLASSES, CLASSES[:, None]),
        (FLOATS, FLOATS[:, None]),
        (FLOATS[:, None], FLOATS[None, :, None]),
        (CLASSES, CLASSES[:, None].astype("f4")),
        (CLASSES, ONE_HOT),
        (CLASSES[:, None], ONE_HOT),
        (CLASSES, ONE_HOT.astype("i4")),
        (CLASSES[:, None], 0.9 * ONE_HOT + 0.02),
        (CLASSES > 2, (CLASSES > 2)[:, None]),
        (GRAY, GRAY[:, None]),
        (GRAY[:, None], GRAY[..., None]),
        (GRAY[:1], GRAY[:1, None]),
        (GRAY, GRAY.reshape(8, 36)),
        (IMAGES, IMAGES.reshape(8, -1)),
        (IMAGES.reshape(8, -1), IMAGES.transpose(0, 2, 3, 1)),
        (IMAGES, IMAGES.transpose(0, 2, 3, 1)),
    ],
    ids=lambda tensor: f"{tensor.dtype}{list(tensor.shape)}",
)
def test_shapes_that_mean_the_same_are_the_same(a: Array, b: Array, tmp_path: Path) -> None:
    for one, other in ((a, b), (b, a)):
        inputs = compare(one, other, tmp_path)
        assert inputs.cause == ""
        assert inputs.errors[0] < 1e-6


@pytest.mark.parametrize(("types", "limit"), [("ff", 1e-6), ("ef", 2.0**-8), ("fe", 2.0**-8), ("ee", 2.0**-8)])
def test_inputs_are_compared_at_the_precision_of_the_coarser_type(types: str, limit: float, tmp_path: Path) -> None:
    one, other = (FLOATS.astype(name) for name in types)
    inputs = compare(one, other, tmp_path)
    assert (inputs.cause, inputs.limits) == ("", {0: limit})
    assert compare(one, other + np.float32(2 * limit), tmp_path).cause != ""


NORMALIZED = (IMAGES - 0.5) / np.float32([0.2, 0.25, 0.3])[:, None, None]


@pytest.mark.parametrize(
    ("a", "b", "cause"),
    [
        (FLOATS, 255 * FLOATS[:, None], "B's inputs are A's times 255"),
        (FLOATS, FLOATS[::-1, None], "B's batch has the same inputs, in another order"),
        (CLASSES, CLASSES[:, None] + 1, "B's labels are A's plus 1"),
        (CLASSES, CLASSES[::-1, None], "B's batch has the same labels in another order"),
        (GRAY[:, None], GRAY[..., ::-1, None], "B has the inputs mirrored along axis 3"),
        (IMAGES, NORMALIZED, "B's inputs are A's, scaled and shifted for each index of axis 1 (normalized)"),
        (FLOATS, FLOATS[:16, None], "the batches have the shapes (32,) and (16, 1)"),
        (GRAY, IMAGES, "the batches have the shapes (8, 6, 6) and (8, 3, 6, 6)"),
    ],
)
def test_a_difference_is_named_in_spite_of_the_shapes(a: Array, b: Array, cause: str, tmp_path: Path) -> None:
    assert compare(a, b, tmp_path).cause == cause


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (FLOATS, 0 * FLOATS),
        (FLOATS, 0 * FLOATS[:, None]),
        (0 * FLOATS + 1, FLOATS),
        (FLOATS, 0 * FLOATS + 7),
        (FLOATS[:2], FLOATS[2:4]),
        (FLOATS[:1, None], FLOATS[1:2]),
        (IMAGES[0, 0, :2], IMAGES[0, 1, :2]),  # each column has two values
        (IMAGES[:1, :1, :1, :3], IMAGES[1:2, :1, :1, :3]),
        (FLOATS, 1e6 + RANDOM.normal(size=32)),  # values that hardly vary
    ],
)
def test_a_cause_that_fits_anything_is_not_one(a: Array, b: Array, tmp_path: Path) -> None:
    assert compare(a, b, tmp_path).cause == "the batches have other inputs"


def test_one_label_is_not_shifted_by_a_number(tmp_path: Path) -> None:
    assert compare(np.array([3]), np.array([[5]]), tmp_path).cause == "the batches have other labels"


def test_labels_at_each_position_are_decoded_along_the_classes() -> None:
    labels = CLASSES.reshape(8, 4)
    assert np.array_equal(decode_labels(np.eye(5, dtype="f4")[labels]), labels)
