"""Planted differences in user programs: `trace diff` names the right cause first, and none for equal trainings."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

from polybench.schema.trace import TraceDiffDocument
from polybench.trace.diff import diff
from tests.trace.planted import ADAM, CAUSES, MISSING, Plant, network

pytest.importorskip("torch")
pytest.importorskip("jax")

from tests.trace import jax_program, torch_program

Record = Callable[..., Path]
PROGRAMS = {"torch": torch_program.train, "jax": jax_program.train}


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Return a function that records a program once for each set of differences."""
    folder = tmp_path_factory.mktemp("traces")

    @cache
    def recorded(framework: str, *plants: Plant) -> Path:
        file = folder / f"{framework}-{'+'.join(plants)}.trace"
        PROGRAMS[framework](file, plants)
        return file

    return recorded


def base(*plants: Plant) -> tuple[Plant, ...]:
    """Return what both programs have in common: the optimizer."""
    return ("adamw",) if {*plants} & {*ADAM} else ()


def check(a: Path, b: Path, plant: Plant) -> TraceDiffDocument:
    """Check that the planted difference is named first, apart from conventions of Keras."""
    document = diff(a, b, model=network())
    causes = [cause.cause for cause in document.causes if "running variance divides" not in cause.cause]
    if plant == "biased variance":
        causes = [cause.cause for cause in document.causes]
    assert causes, f"{plant}: {document.verdict}"
    assert CAUSES[plant] in causes[0], document.verdict
    return document


@pytest.mark.parametrize("plant", CAUSES)
def test_the_planted_difference_is_named(plant: Plant, record: Record) -> None:
    framework = "jax" if plant in MISSING["torch"] else "torch"
    document = check(record("torch", *base(plant)), record(framework, *base(plant), plant), plant)
    assert len(document.causes) == 1, document.verdict


@pytest.mark.exhaustive
@pytest.mark.parametrize("plant", CAUSES)
@pytest.mark.parametrize(("a", "b"), [("torch", "jax"), ("jax", "torch"), ("jax", "jax")])
def test_the_planted_difference_is_named_across_frameworks(a: str, b: str, plant: Plant, record: Record) -> None:
    if plant in MISSING[b]:
        pytest.skip(f"the program in {b} has no {plant}")
    check(record(a, *base(plant)), record(b, *base(plant), plant), plant)


@pytest.mark.parametrize("optimizer", [(), ("adamw",)])
@pytest.mark.parametrize(("a", "b"), [("torch", "jax"), ("jax", "torch"), ("torch", "torch")])
def test_equal_trainings_have_no_cause(a: str, b: str, optimizer: tuple[Plant, ...], record: Record) -> None:
    document = diff(record(a, *optimizer), record(b, *optimizer), model=network())
    assert document.first_difference is None, document.verdict
    assert not document.causes


def test_the_first_difference_has_its_step(record: Record) -> None:
    document = diff(record("torch"), record("torch", "momentum"))
    assert document.first_difference is not None
    assert (document.first_difference.step, document.first_difference.kind) == (1, "update")
    document = diff(record("torch"), record("torch", "gradients not zeroed"))
    assert document.first_difference is not None
    assert (document.first_difference.step, document.first_difference.kind) == (1, "gradient")


def test_causes_that_need_the_network_are_named_as_not_tried(record: Record) -> None:
    document = diff(record("torch"), record("torch", "pooling"))
    assert "No known cause explains it" in document.verdict
    assert "kind of pooling (needs --model)" in document.not_tried
    assert "initial weights" in document.excluded


@pytest.mark.exhaustive
def test_two_planted_differences_together(record: Record) -> None:
    choose = random.Random(0)
    named_first = total = 0
    for _ in range(60):
        plants = tuple(choose.sample([*{*CAUSES} - MISSING["torch"]], 2))
        if base(*plants) and {*plants} & {"momentum", "dampening", "nesterov", "learning rate", "weight decay"}:
            continue  # settings of SGD
        document = diff(record("torch", *base(*plants)), record("torch", *base(*plants), *plants), model=network())
        first = document.causes[0].cause if document.causes else ""
        named_first += any(CAUSES[plant] in first for plant in plants)
        total += 1
    assert named_first >= 0.95 * total


@pytest.mark.slow
def test_planted_differences_in_keras(record: Record, tmp_path: Path) -> None:
    pytest.importorskip("keras")
    planted = [plant for plant in CAUSES if plant not in MISSING["keras"]]
    files = {plant: _keras_file(tmp_path, (*_keras_base(plant), plant)) for plant in planted}
    equal = _keras_file(tmp_path, ("no decay",))
    command = [sys.executable, "-m", "tests.trace.keras_program", *map(str, [equal, *files.values()])]
    subprocess.run(command, check=True, env=os.environ | {"KERAS_BACKEND": "tensorflow"}, capture_output=True)
    document = diff(record("torch", "no decay"), equal, model=network())
    assert [cause.cause for cause in document.causes] == ["A's running variance divides by n - 1, B's by n"]
    for plant, file in files.items():
        document = diff(record("torch", *_keras_base(plant)), file, model=network())
        assert any(CAUSES[plant] in cause.cause for cause in document.causes), f"{plant}: {document.verdict}"


def _keras_base(plant: Plant) -> tuple[Plant, ...]:
    return base(plant) or ("no decay",)


def _keras_file(folder: Path, plants: Iterable[Plant]) -> Path:
    return folder / f"{'+'.join(plants)}.trace"
