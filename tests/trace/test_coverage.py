"""What `trace diff` did not compare is a line of its result, and never reads as agreement; types are named."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import polybench
from polybench.render import render
from polybench.schema.trace import TraceDiffDocument
from polybench.trace.coverage import _list, _usual_dtype
from polybench.trace.diff import diff
from polybench.trace.file import Array

Tree = Mapping[str, Array]
Change = Callable[[int, dict[str, Any]], dict[str, Any]]
NAMES = {"running_mean": "running_mean", "running_var": "running_var"}


def record(
    file: Path,
    *,
    names: Mapping[str, str] = NAMES,
    change: Change = lambda _, step: step,
    mean: float = 0.0,
    steps: int = 3,
) -> Path:
    """Record a linear model whose inputs have running statistics, trained by gradient descent in float32.

    Args:
        file: the trace.
        names: of the running statistics in this program.
        change: of the arguments of `step`, by its number.
        mean: the initial running mean.
        steps: the number of steps.
    """
    random = np.random.default_rng(0)
    weights = {"fc.weight": random.normal(size=(2, 3)).astype("f4"), "fc.bias": np.ones(2, "f4")}
    statistics = {names["running_mean"]: np.full(3, mean, "f4"), names["running_var"]: np.ones(3, "f4")}
    with polybench.record(file, model=weights, statistics=statistics) as trace:
        for step in range(steps):
            x, y = random.normal(1, 2, (8, 3)).astype("f4"), random.normal(size=(8, 2)).astype("f4")
            error = (x @ weights["fc.weight"].T + weights["fc.bias"] - y) / 8
            gradients = {"fc.weight": error.T @ x, "fc.bias": error.sum(0)}
            weights = {name: one - np.float32(0.05) * gradients[name] for name, one in weights.items()}
            mean_name, variance_name = names.values()
            statistics = {
                mean_name: (0.9 * statistics[mean_name] + 0.1 * x.mean(0)).astype("f4"),
                variance_name: (0.9 * statistics[variance_name] + 0.1 * x.var(0)).astype("f4"),
            }
            loss = float((error**2).sum())
            given = {
                "loss": loss,
                "batch": (x, y),
                "gradients": gradients,
                "weights": weights,
                "statistics": statistics,
            }
            trace.step(**change(step, given))
    return file


def without(name: str) -> Change:
    return lambda _, step: step | {name: {}}


def compare(tmp_path: Path, *, both: Change = lambda _, step: step, **options: Any) -> TraceDiffDocument:
    return diff(record(tmp_path / "a", change=both), record(tmp_path / "b", **({"change": both} | options)))


def test_everything_is_compared(tmp_path: Path) -> None:
    document = compare(tmp_path)
    assert document.verdict == "no difference in the steps 0, 1, 2, up to rounding"
    assert document.not_compared == document.dtypes == document.undecided == []


@pytest.mark.parametrize(
    "names", [("mean", "rv"), ("rm", "rv"), ("moving_mean", "moving_variance"), ("μ", "σ²"), ("a", "b")]
)
def test_statistics_of_any_name_are_compared(names: tuple[str, str], tmp_path: Path) -> None:
    own = dict(zip(NAMES, names, strict=True))
    assert compare(tmp_path, names=own).verdict == "no difference in the steps 0, 1, 2, up to rounding"
    document = compare(tmp_path, names=own, mean=99.0)
    assert document.first_difference is not None, document.verdict
    assert (document.first_difference.step, document.first_difference.kind) == (0, "statistic")
    assert document.first_difference.tensor == "running_mean"
    assert "agree; the running statistics differ by" in document.verdict


def drop_variance(_: int, step: dict[str, Any]) -> dict[str, Any]:
    return step | {"statistics": {"running_mean": step["statistics"]["running_mean"]}}


def drop_bias(_: int, step: dict[str, Any]) -> dict[str, Any]:
    return step | {"gradients": {"fc.weight": step["gradients"]["fc.weight"]}}


def drop_labels(_: int, step: dict[str, Any]) -> dict[str, Any]:
    return step | {"batch": step["batch"][:1]}


def lose_loss(number: int, step: dict[str, Any]) -> dict[str, Any]:
    return step | {"loss": math.nan if number == 1 else step["loss"]}


def lose_gradient(_: int, step: dict[str, Any]) -> dict[str, Any]:
    return step | {"gradients": step["gradients"] | {"fc.bias": np.full(2, np.nan, "f4")}}


@pytest.mark.parametrize(
    ("change", "in_b", "in_both"),
    [
        (without("gradients"), "gradients, which only A has", "gradients, which neither trace has"),
        (drop_bias, "gradients of fc.bias, which only A has", "gradients of fc.bias, which neither trace has"),
        (without("batch"), "batches, which only A has", "batches, which neither trace has"),
        (drop_labels, "batches of batch/1, which only A has", None),
        (without("statistics"), "running statistics, which only A has", None),
        (drop_variance, "running statistics of running_var, which only A has", None),
        (lose_loss, None, "the loss, which is not finite in both traces (step 1)"),
        (lose_gradient, None, "the gradient of fc.bias, which is not finite in both traces"),
    ],
)
def test_what_is_not_compared_is_named(change: Change, in_b: str | None, in_both: str | None, tmp_path: Path) -> None:
    for expected, both in ((in_b, lambda _, step: step), (in_both, change)):
        if expected is None:
            continue
        document = compare(tmp_path, both=both, change=change)
        assert document.first_difference is None, document.verdict
        assert document.not_compared == [expected]
        assert document.verdict == f"no difference in the steps 0, 1, 2, up to rounding. Not compared: {expected}"
        assert f"not compared: {expected}" in " ".join(render(document, "table", kind="trace").split())


def test_the_usual_type_is_that_of_most_weights() -> None:
    types = {"a": "float16", "b": "float32", "c": "float32"}
    trace: Any = SimpleNamespace(names=lambda *_: [*types], dtype=lambda _, __, name: types[name])
    assert _usual_dtype(trace) == "float32"


@pytest.mark.parametrize(("count", "text"), [(5, "0, 1, 2, 3, 4"), (7, "0, 1, 2, 3, 4 and 2 more")])
def test_a_line_lists_five_names(count: int, text: str) -> None:
    assert _list(map(str, range(count))) == text


@pytest.mark.parametrize("short", ["a", "b"])
def test_a_step_that_only_one_trace_has_is_named(short: str, tmp_path: Path) -> None:
    document = diff(*(record(tmp_path / name, steps=2 if name == short else 3) for name in "ab"))
    assert document.not_compared == ["step 2, which only one trace has"]
    missing = {name: "2, 10" if name == short else "10" for name in "ab"}  # of those that are recorded by default
    assert document.warnings == [
        f"{tmp_path / name}: the training ended before the steps {steps}" for name, steps in missing.items()
    ]


def test_a_loss_that_is_finite_in_one_trace_differs(tmp_path: Path) -> None:
    document = compare(tmp_path, change=lose_loss)
    assert document.first_difference is not None
    assert (document.first_difference.step, document.first_difference.kind) == (1, "loss")
    assert document.first_difference.error is None
    assert "step 1: weights and batches agree; the loss differs" in document.verdict
    assert any("the loss is not finite in the steps 1" in warning for warning in document.warnings)


@pytest.mark.parametrize("kind", ["gradients", "weights", "statistics"])
def test_numbers_that_are_finite_in_one_trace_differ(kind: str, tmp_path: Path) -> None:
    def lose(_: int, step: dict[str, Any]) -> dict[str, Any]:
        return step | {kind: {name: one * np.float32("nan") for name, one in step[kind].items()}}

    document = compare(tmp_path, change=lose)
    assert document.first_difference is not None
    assert document.first_difference.step == 0


def cast(kind: str, dtype: str, *names: str) -> Change:
    def change(_: int, step: dict[str, Any]) -> dict[str, Any]:
        if kind == "batch":
            return step | {"batch": tuple(one.astype(dtype) for one in step["batch"])}
        return step | {kind: {name: one.astype(dtype if name in names else "f4") for name, one in step[kind].items()}}

    return change


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (cast("gradients", "f8", "fc.weight"), "float64: gradient fc.weight"),
        (cast("gradients", "f8", "fc.weight", "fc.bias"), "float64: gradient fc.weight, gradient fc.bias"),
        (cast("batch", "f8"), "float64: batch/0, batch/1"),
        (cast("gradients", "f2", "fc.bias"), "float16: gradient fc.bias"),
        (cast("gradients", "f2", "fc.weight", "fc.bias"), "float16: gradient fc.weight, gradient fc.bias"),
    ],
)
def test_a_tensor_of_another_type_is_named(change: Change, expected: str, tmp_path: Path) -> None:
    document = compare(tmp_path, change=change)
    assert document.dtypes == [f"B is a training in float32, but has {expected}"]
    assert document.first_difference is None, document.verdict
    assert document.undecided == []  # rounding is that of the coarser type
    assert document.dtypes[0] in " ".join(render(document, "table", kind="trace").split())


def test_an_update_without_a_gradient_is_compared(tmp_path: Path) -> None:
    def without_gradient(_: int, step: dict[str, Any]) -> dict[str, Any]:
        return step | {"gradients": step["gradients"] | {"fc.bias": np.zeros(2, "f4")}}

    def decayed(number: int, step: dict[str, Any]) -> dict[str, Any]:
        bias = np.float32(0.9) * step["weights"]["fc.bias"]
        return without_gradient(number, step) | {"weights": step["weights"] | {"fc.bias": bias}}

    assert compare(tmp_path, both=without_gradient).not_compared == []
    document = compare(tmp_path, both=without_gradient, change=decayed)
    assert document.first_difference is not None, document.verdict
    found = document.first_difference
    assert (found.step, found.kind, found.tensor) == (0, "update", "fc.bias")


def test_gradients_that_are_not_set_to_zero_are_a_sum_of_two_steps(tmp_path: Path) -> None:
    before: dict[str, Array] = {}

    def add(_: int, step: dict[str, Any]) -> dict[str, Any]:
        total = {name: one + before.get(name, np.float32(0)) for name, one in step["gradients"].items()}
        before.update(step["gradients"])
        return step | {"gradients": total}

    found = [one.cause for one in compare(tmp_path, change=add).causes]
    assert "B adds its gradients to those of the step before: it does not set them to zero" in found


@pytest.mark.parametrize("which", ["A", "B"])
def test_the_size_of_a_batch_follows_from_the_variances(which: str, tmp_path: Path) -> None:
    """The factor n / (n - 1) of the unbiased variance tells the eight rows of a batch."""
    variance = np.ones(3)

    def unbiased(_: int, step: dict[str, Any]) -> dict[str, Any]:
        variance[:] = 0.9 * variance + 0.1 * step["batch"][0].var(0, ddof=1)
        return step | {"statistics": step["statistics"] | {"running_var": variance.astype("f4")}}

    files = [record(tmp_path / name, change=unbiased if name == which else lambda _, step: step) for name in "AB"]
    (cause,) = diff(*files).causes
    other = "B" if which == "A" else "A"
    assert cause.cause == f"{which}'s running variance divides by n - 1, {other}'s by n"
    assert cause.evidence.endswith("so n is 8")
