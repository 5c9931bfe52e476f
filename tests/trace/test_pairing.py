"""Pairs of tensors of two traces, and the axes between them."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

import polybench
from polybench.trace.file import Array, Trace
from polybench.trace.pairing import Layout, is_variance, pair_statistics, pair_weights, relative_error


def layout_of(a: Array, b: Array, folder: Path, framework: str = "numpy") -> Layout:
    """Return how B's only weight becomes A's, if B is a trace of this framework."""
    for name, weight in (("a", a), ("b", b)):
        with polybench.record(folder / name, model={"weight": weight}) as trace:
            trace.step(loss=1.0, weights={"weight": weight})
    with Trace(folder / "a") as trace_a, Trace(folder / "b") as trace_b:
        trace_b.header = msgspec.structs.replace(trace_b.header, framework=framework)
        (pair,) = pair_weights(trace_a, trace_b, {})
    return pair.layout


def test_axes_of_an_order_that_is_not_its_own_inverse(tmp_path: Path) -> None:
    a = np.arange(24.0).reshape(2, 3, 4)
    b = a.transpose(2, 0, 1)
    layout = layout_of(a, b, tmp_path)
    assert layout.axes == (1, 2, 0)
    assert np.array_equal(layout.apply(b), a)


def test_columns_of_flattened_images_with_channels_last(tmp_path: Path) -> None:
    a = np.random.default_rng(0).random((4, 6))
    b = a.reshape(4, 2, 3).transpose(0, 2, 1).reshape(4, 6)
    layout = layout_of(a, b, tmp_path)
    assert layout.columns == (0, 2, 4, 1, 3, 5)
    assert np.array_equal(layout.apply(b), a)


@pytest.mark.parametrize(
    ("framework", "axes"), [("keras on jax", (1, 0)), ("flux", (1, 0)), ("torch", (0, 1)), ("jax", (0, 1))]
)
def test_other_weights_of_a_square_dense_layer_have_the_usual_axes(
    framework: str, axes: tuple[int, int], tmp_path: Path
) -> None:
    a, b = np.random.default_rng(0).random((2, 3, 3))
    assert layout_of(a, b, tmp_path, framework) == Layout(axes)


def test_equal_values_tell_more_than_equal_names(tmp_path: Path) -> None:
    one, two = np.random.default_rng(0).random((2, 3))
    for name, weights in (("a", {"first": one, "second": two}), ("b", {"first": two, "second": one})):
        with polybench.record(tmp_path / name, model=weights) as trace:
            trace.step(loss=1.0, weights=weights)
    with Trace(tmp_path / "a") as a, Trace(tmp_path / "b") as b:
        assert [(pair.a, pair.b) for pair in pair_weights(a, b, {})] == [("first", "second"), ("second", "first")]


def test_each_weight_is_in_one_pair(tmp_path: Path) -> None:
    one, two = np.random.default_rng(0).random((2, 3))
    for name, weights in (("a", {"first": one, "second": one}), ("b", {"x": one, "y": two})):
        with polybench.record(tmp_path / name, model=weights) as trace:
            trace.step(loss=1.0, weights=weights)
    with Trace(tmp_path / "a") as a, Trace(tmp_path / "b") as b:
        assert [(pair.a, pair.b) for pair in pair_weights(a, b, {})] == [("first", "x"), ("second", "y")]


def test_each_statistic_is_in_one_pair_with_the_surest_partner(tmp_path: Path) -> None:
    """The second mean has the values of the first one's partner, and another name than each of B."""
    one, two = np.random.default_rng(0).random((2, 3)) - 1
    weights = {"w": np.ones(3)}
    for name, means in (("a", {"mean1": one, "mean2": one}), ("b", {"mean1": one, "mean": two})):
        with polybench.record(tmp_path / name, model=weights, statistics=means) as trace:
            trace.step(loss=1.0, weights=weights, statistics=means)
    with Trace(tmp_path / "a") as a, Trace(tmp_path / "b") as b:
        pairs = [(pair.a, pair.b) for pair in pair_statistics(a, b)]
    assert pairs == [("mean1", "mean1"), ("mean2", "mean")]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [("bn.running_var", 0.0, True), ("layers.1.σ²", 0.0, True), ("layers.1.μ", 1.0, False), ("moving_mean", 1.0, False),
     ("second", 1.0, True), ("second", 0.0, False)],
)  # fmt: skip
def test_a_variance_is_known_by_its_name_or_its_values(name: str, value: float, expected: bool) -> None:
    assert is_variance(name, np.full(3, value)) == expected


def test_an_error_is_relative_to_a() -> None:
    assert relative_error(1.0, 4.0) == 3.0
    assert relative_error(4.0, 1.0) == 0.75
    assert relative_error(0.0, 2.0) == 1.0
