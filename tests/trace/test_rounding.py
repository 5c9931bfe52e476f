"""Rounding explains an error only up to a ceiling, which follows from the type of each tensor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polybench
from polybench.schema.trace import DifferenceKind, TraceDiffDocument
from polybench.trace.diff import diff
from tests.trace.test_coverage import Change, compare, record

SCALES = {"fc.weight": 1.0, "fc.bias": 1.0}
FLOAT32, FLOAT16, MIXED = ("f4", "f4"), ("f2", "f2"), ("f4", "f2")
"""Types of the gradients of weight and bias."""


@pytest.fixture(autouse=True)
def no_search_for_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the search for the rules of the optimizers, which takes seconds if none explains the updates."""
    monkeypatch.setattr("polybench.trace.comparison.find_rules", lambda *_: None)


def with_noise(error: float, dtypes: tuple[str, str], *names: str) -> Change:
    """Change gradients by a relative error, in another direction for each value, and cast them."""

    def change(number: int, step: dict[str, Any]) -> dict[str, Any]:
        random = np.random.default_rng([number, 1])
        gradients = {}
        for (name, gradient), dtype in zip(step["gradients"].items(), dtypes, strict=True):
            noise = random.normal(size=gradient.shape)
            noise *= error * np.linalg.norm(gradient) / np.linalg.norm(noise) if name in names else 0
            gradients[name] = (gradient + noise).astype(dtype)
        return step | {"gradients": gradients}

    return change


def compare_gradients(tmp_path: Path, error: float, dtypes: tuple[str, str], *names: str) -> TraceDiffDocument:
    both = with_noise(0.0, dtypes)
    return compare(tmp_path, both=both, change=with_noise(error, dtypes, *names))


def outcome(document: TraceDiffDocument) -> str:
    if document.first_difference is not None:
        assert (document.first_difference.step, document.first_difference.kind) == (0, "gradient"), document.verdict
        return "differs"
    return "cannot tell" if document.undecided else "agrees"


@pytest.mark.parametrize(
    ("error", "dtypes", "names", "expected"),
    [
        (3e-6, FLOAT32, ("fc.weight", "fc.bias"), "agrees"),
        (3e-4, FLOAT32, ("fc.weight", "fc.bias"), "differs"),  # no switch changes the last gradients
        (1e-3, FLOAT32, ("fc.weight",), "agrees"),
        (0.02, FLOAT32, ("fc.weight",), "cannot tell"),  # one switch in a small batch
        (0.1, FLOAT32, ("fc.weight",), "differs"),
        (0.1, FLOAT32, ("fc.bias",), "differs"),
        (2e-3, FLOAT16, ("fc.weight",), "agrees"),
        (0.03, FLOAT16, ("fc.weight",), "cannot tell"),
        (0.2, FLOAT16, ("fc.weight",), "cannot tell"),
        (0.6, FLOAT16, ("fc.weight",), "differs"),
        (0.5, FLOAT16, ("fc.weight", "fc.bias"), "differs"),
        (0.02, MIXED, ("fc.weight",), "cannot tell"),
        (0.6, MIXED, ("fc.weight",), "differs"),
    ],
)
def test_gradients(
    error: float, dtypes: tuple[str, str], names: tuple[str, ...], expected: str, tmp_path: Path
) -> None:
    document = compare_gradients(tmp_path, error, dtypes, *names)
    assert outcome(document) == expected, document.verdict
    if expected == "cannot tell":
        assert "no difference" not in document.verdict
        assert document.undecided[0].tensor in names
        assert document.undecided[0].error == pytest.approx(error, rel=0.1)
        assert document.undecided[0].error <= document.undecided[0].explains <= 1


@pytest.mark.parametrize(
    ("dtypes", "dtype", "better"), [(FLOAT16, "float16", "float32"), (FLOAT32, "float32", "float64")]
)
def test_the_verdict_names_the_type_that_would_tell(
    dtypes: tuple[str, str], dtype: str, better: str, tmp_path: Path
) -> None:
    verdict = compare_gradients(tmp_path, 0.03, dtypes, "fc.weight").verdict
    assert "cannot tell the trainings apart at this precision: in step 0, " in verdict
    assert f"rounding in {dtype} may explain" in verdict
    assert "of the gradient of fc.weight, and the error is 0.03;" in verdict
    assert f"record both in {better}" in verdict


def test_undecided_gradients_do_not_agree_in_the_sentence_of_a_later_difference(tmp_path: Path) -> None:
    noise = with_noise(0.03, FLOAT16, "fc.weight")

    def change(number: int, step: dict[str, Any]) -> dict[str, Any]:
        return noise(number, step | {"statistics": {name: 2 * one for name, one in step["statistics"].items()}})

    document = compare(tmp_path, both=with_noise(0.0, FLOAT16), change=change)
    assert "step 0: weights, batches and loss agree; the running statistics differ" in document.verdict
    assert [(one.step, one.kind) for one in document.undecided] == [(0, "gradient")]


@pytest.mark.parametrize("doubled", [None, 1], ids=["alone", "before a larger difference"])
def test_what_a_cause_explains_is_the_first_difference(doubled: int | None, tmp_path: Path) -> None:
    """The factor of the gradients is less than rounding may do, and the running statistics of step 1 differ."""

    def change(number: int, step: dict[str, Any]) -> dict[str, Any]:
        gradients = {name: (1.03 * one).astype("f2") for name, one in step["gradients"].items()}
        statistics = {name: (2 if number == doubled else 1) * one for name, one in step["statistics"].items()}
        return step | {"gradients": gradients, "statistics": statistics}

    document = compare(tmp_path, both=with_noise(0.0, FLOAT16), change=change)
    found = document.first_difference
    assert found is not None
    assert (found.step, found.kind, document.causes[0].cause[:22]) == (0, "gradient", "B scales its gradients")
    assert document.undecided == []


@pytest.mark.parametrize(
    ("kind", "factor", "error"),
    [("loss", 1 + 1e-5, 1e-5), ("statistics", 1 + 1e-5, 1e-5), ("weights", 1.001, 1e-3), ("batch", 1 + 1e-5, 1e-5)],
)
def test_step_0_is_strict(kind: str, factor: float, error: float, tmp_path: Path) -> None:
    kinds: dict[str, DifferenceKind] = {"statistics": "statistic", "weights": "update"}

    def change(_: int, step: dict[str, Any]) -> dict[str, Any]:
        value = step[kind]
        if isinstance(value, dict):
            return step | {kind: {name: (one * factor).astype(one.dtype) for name, one in value.items()}}
        return step | {kind: (value[0] * np.float32(factor), value[1]) if kind == "batch" else value * factor}

    document = compare(tmp_path, change=change)
    assert document.first_difference is not None, document.verdict
    assert (document.first_difference.step, document.first_difference.kind) == (0, kinds.get(kind, kind))


@pytest.mark.parametrize(("error", "differs"), [(0.05, False), (0.2, True)])
def test_an_update_may_differ_by_what_was_not_recorded_before_it(error: float, differs: bool, tmp_path: Path) -> None:
    """The state of an optimizer follows all steps, and those from 1 to 4 differ by 3 %."""
    random = np.random.default_rng(0)
    start, gradient, step, other = random.normal(size=(4, 2, 3))
    step *= np.linalg.norm(start) / np.linalg.norm(step) / 3e4
    other -= step * np.vdot(step, other) / np.vdot(step, step)
    other *= np.linalg.norm(step) / np.linalg.norm(other)

    def record(name: str, errors: Sequence[float]) -> Path:
        weights = start
        with polybench.record(tmp_path / name, model={"fc.weight": start}, steps=(0, 5)) as trace:
            for one in errors:
                weights = weights + step + one * other
                trace.step(
                    loss=1.0, batch=(start, start), gradients={"fc.weight": gradient}, weights={"fc.weight": weights}
                )
        return tmp_path / name

    document = diff(record("a", [0.0] * 6), record("b", [0.0, *[0.03] * 4, error]))
    found = document.first_difference
    assert (found is not None) == differs, document.verdict
    assert (5, "update") in [(one.step, one.kind) for one in (*document.undecided, *([found] if found else []))]


def test_an_update_may_differ_by_the_error_of_any_gradient_before_it(tmp_path: Path) -> None:
    """A momentum keeps the gradient of step 0, which may be rounding, for step 1, whose own gradient agrees."""
    before: dict[str, Any] = {}

    def change(number: int, step: dict[str, Any]) -> dict[str, Any]:
        if number == 0:
            before.update(step["weights"])
            return with_noise(0.02, FLOAT32, "fc.weight")(0, step)
        weight = step["weights"]["fc.weight"]
        update, noise = weight - before["fc.weight"], np.random.default_rng(3).normal(size=weight.shape)
        noise *= 0.03 * np.linalg.norm(update) / np.linalg.norm(noise)
        return step | {"weights": step["weights"] | {"fc.weight": (weight + noise).astype("f4")}}

    document = diff(record(tmp_path / "a", steps=2), record(tmp_path / "b", change=change, steps=2))
    assert document.first_difference is None, document.verdict
    assert {(one.step, one.kind) for one in document.undecided} == {(0, "gradient")}
