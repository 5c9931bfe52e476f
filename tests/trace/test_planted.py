"""Planted differences in user programs: `trace diff` names the right cause first, and none for equal trainings."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from polybench.trace.diff import diff
from tests.lazy import needs
from tests.trace.planted import CAUSES, MISSING, Located
from tests.trace.recall import (
    FRAMEWORKS,
    Case,
    Outcome,
    Program,
    clean_cases,
    compare,
    located_cases,
    paired_cases,
    record,
    single_cases,
)

pytestmark = needs("torch", "jax")

Compare = Callable[[Iterable[Case]], list[Outcome]]
IN_TORCH = list(single_cases(["torch"], ["torch"]))
IN_JAX = [case for case in single_cases(["jax"], ["torch"]) if case.planted[0] in MISSING["torch"]]
HOUR = 3600
"""Seconds for hundreds of trainings, also beside other work."""
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "compare_trainings.md"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


def describe(outcomes: Iterable[Outcome]) -> str:
    return "\n".join(f"{one.case}: {one.document.first_difference}; {one.document.verdict}" for one in outcomes)


@pytest.mark.parametrize("case", [*IN_TORCH, *IN_JAX], ids=lambda case: case.planted[0])
def test_the_planted_difference_is_the_only_cause(case: Case, folder: Path) -> None:
    (outcome,) = compare([case], folder)
    assert outcome.is_first, describe([outcome])
    assert outcome.has_right_step, describe([outcome])
    assert len(outcome.causes) == 1, describe([outcome])


@pytest.mark.parametrize(
    ("located", "case"), list(located_cases()), ids=["+".join((one.plant, *one.common)) for one, _ in located_cases()]
)
def test_rounding_hides_no_difference(located: Located, case: Case, folder: Path) -> None:
    (outcome,) = compare([case], folder)
    first = outcome.document.first_difference
    assert first is not None, describe([outcome])
    assert (first.step, first.kind) == (located.step, located.kind), describe([outcome])
    assert located.words in outcome.document.verdict, describe([outcome])
    assert len(outcome.causes) <= 1, describe([outcome])


def test_each_difference_is_planted_somewhere_and_is_a_row_of_the_guide() -> None:
    planted = {case.planted[0] for case in [*IN_TORCH, *IN_JAX]}
    assert planted == {*CAUSES}
    assert len(CAUSES) >= 40
    rows = re.findall(r"^\| ([^|]+) \| (?:\d+ of \d+)? ?\|", GUIDE.read_text(), re.M)
    assert rows == [*CAUSES]


def test_equal_trainings_have_no_cause(folder: Path) -> None:
    cases = [case for case in clean_cases() if case.b.framework != "keras"]
    cases = [*cases[:24:7], *cases[24:]]
    assert len(cases) == 6
    outcomes = compare(cases, folder)
    wrong = [one for one in outcomes if not (one.is_first and one.has_right_step)]
    assert not wrong, describe(wrong)
    assert not [name for one in outcomes for name in one.document.not_tried if "explains both" in name]


def test_float64_and_float32_have_no_cause(folder: Path) -> None:
    from tests.trace import torch_program

    precise, case = folder / "float64.trace", Program("torch")
    torch_program.train(precise, ("in float64",))
    document = diff(precise, record([case], folder)[case])
    assert document.first_difference is None, document.verdict
    assert not document.causes
    assert document.dtypes == ["the weights are float64 in A, and float32 in B"]


def test_a_difference_between_recorded_steps_names_the_last_equal_one(folder: Path) -> None:
    case = Case(Program("torch", ("no norm",)), Program("torch", ("no norm", "last labels")))
    (outcome,) = compare([case], folder)
    assert "step 10: the weights differ" in outcome.document.verdict
    assert "they part after step 2" in outcome.document.verdict


def test_causes_that_need_the_network_are_named_as_not_tried(folder: Path) -> None:
    files = record([Program("torch"), Program("torch", ("pooling",))], folder)
    document = diff(*files.values())
    assert "No known cause explains it" in document.verdict
    assert "kind of pooling (needs --model)" in document.not_tried
    assert "initial weights" in document.excluded


@needs("keras")
@pytest.mark.wide
@pytest.mark.timeout(HOUR)
def test_planted_differences_are_named_first_in_all_frameworks(folder: Path) -> None:
    outcomes = compare(single_cases(), folder)
    assert {one.case.b.framework for one in outcomes} == {*FRAMEWORKS}
    wrong = [one for one in outcomes if not one.is_first]
    assert len(wrong) <= 0.05 * len(outcomes), describe(wrong)
    late = [one for one in outcomes if not one.has_right_step]
    assert not late, describe(late)


@pytest.mark.wide
@pytest.mark.timeout(HOUR)
def test_one_of_two_planted_differences_is_named_first(folder: Path) -> None:
    outcomes = compare(paired_cases(), folder)
    wrong = [one for one in outcomes if not one.is_first]
    assert len(wrong) <= 0.05 * len(outcomes), describe(wrong)


@needs("keras")
@pytest.mark.wide
@pytest.mark.timeout(HOUR)
def test_clean_pairs_of_all_frameworks_have_no_cause(folder: Path) -> None:
    outcomes = compare(clean_cases(), folder)
    assert len(outcomes) >= 40
    wrong = [one for one in outcomes if not (one.is_first and one.has_right_step)]
    assert not wrong, describe(wrong)


@needs("keras")
def test_planted_differences_in_keras(folder: Path) -> None:
    chosen = ("padding", "warm-up")
    outcomes = compare((case for case in single_cases(["keras"], ["torch"]) if case.planted[0] in chosen), folder)
    wrong = [one for one in outcomes if not (one.is_first and one.has_right_step)]
    assert len(outcomes) == len(chosen)
    assert not wrong, describe(wrong)


@needs("keras")
@pytest.mark.wide  # test_causes.py has the mean of an epoch, and the planted differences in Keras are wide as well
def test_the_recipe_for_fit_records_what_a_loop_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.trace.keras_fit_program", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    loop, fit, logs = (tmp_path / f"{name}.trace" for name in ("loop", "port", "logs"))
    document = diff(loop, fit)
    assert document.first_difference is None, document.verdict
    assert not document.causes
    assert document.steps[2].gradient is not None
    (mean,) = diff(loop, logs).causes
    assert mean.cause.startswith(
        'B records the mean loss of its epoch so far, not the loss of the batch: Keras\'s `logs["loss"]`'
    )
