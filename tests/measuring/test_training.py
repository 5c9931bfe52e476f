"""Whole trainings, with the fake engine in real processes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.core.document.study import StudyDocument
from polybench.core.document.training import AccuracyDifference, TrainedEpoch, Training
from polybench.core.spec import Study
from polybench.data import synthetic
from polybench.engines import ENGINES
from polybench.engines.fake.engine import STEP_SECONDS, STEPS_TO_HALF_RIGHT, FakeEngine
from polybench.measuring.progress import Silent
from polybench.measuring.study import run_study
from polybench.report.saved_studies import Store
from polybench.wire.messages import Measure, Measured, Prepare, Prepared, Train, Trained
from tests import small
from tests.sessions import InProcess

STEPS = 2000 // 128
FAST: dict[str, Any] = {"data": "synthetic", "processes": 2, "rounds": 1, "steps": 2, "timeout": 60.0}


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 2000)
    monkeypatch.setitem(synthetic.IMAGES, "test", 1000)


def run(*engines: str, store: Store | None = None, **fields: Any) -> StudyDocument:
    return run_study(Study(engines=engines, **(FAST | fields)), Silent(), store=store)


def test_epochs_are_trained_for_each_seed_and_evaluated(tmp_path: Path) -> None:
    store = Store(tmp_path)
    document = run("fake", "fake+slow", store=store, epochs=2, accuracy=True, seed=7)
    for result in document.results:
        assert [training.seed for training in result.trainings] == [7, 8]
        for epochs in (training.epochs for training in result.trainings):
            assert len(epochs) == 2
            expected = [n * STEPS / (n * STEPS + STEPS_TO_HALF_RIGHT) for n in (1, 2)]
            assert [epoch.accuracy for epoch in epochs] == pytest.approx(expected, abs=0.002)
            assert all(len(epoch.steps_per_second) == 10 for epoch in epochs)
        assert result.accuracy == pytest.approx(expected[-1], abs=0.002)
        assert result.accuracy_std == 0
    # The fake engine's accuracy depends on nothing but the number of steps.
    slow = document.result("fake+slow/cpu").accuracy_difference
    assert slow == AccuracyDifference("fake/cpu", 0.0, (0.0, 0.0), epochs=2, seeds=2)
    fast = document.result("fake/cpu")
    assert fast.epoch_seconds == pytest.approx(STEPS * STEP_SECONDS, rel=0.2)
    assert fast.step_seconds is not None
    assert fast.step_seconds.n == 2 * 2  # the rounds are there as well
    assert store.load("last").result("fake/cpu").trainings == fast.trainings


def test_until_an_accuracy_ends_with_the_epoch_that_has_it() -> None:
    fake = run("fake", processes=1, until={"accuracy": 0.7}).result("fake/cpu")
    (training,) = fake.trainings
    accuracies = [epoch.accuracy or 0 for epoch in training.epochs]
    assert accuracies[-2] < 0.7 <= accuracies[-1]
    assert fake.time_to_accuracy is not None
    assert fake.time_to_accuracy.seconds == sum(epoch.seconds for epoch in training.epochs)
    assert fake.accuracy_std is None


def test_an_accuracy_that_is_not_reached_is_said() -> None:
    fake = run("fake", processes=1, until={"accuracy": 0.99}, epochs=1).result("fake/cpu")
    assert fake.time_to_accuracy is not None
    assert fake.time_to_accuracy.seconds is None
    assert (fake.time_to_accuracy.reached, fake.time_to_accuracy.seeds) == (0, 1)


def test_a_training_that_fails_keeps_what_was_measured() -> None:
    failed = run("fake+diverge", processes=1, epochs=2).result("fake+diverge/cpu")
    assert failed.status == "failed"
    assert "the loss is nan after" in (failed.reason or "")
    assert failed.measured
    assert len(failed.trainings[0].epochs) == 1


class Interrupting(Silent):
    """Ctrl-C at the beginning of this stage."""

    def __init__(self, stage: str) -> None:
        self._stage = stage

    def stage(self, text: str) -> None:
        if text == self._stage:
            raise KeyboardInterrupt


def test_only_complete_trainings_are_in_an_accuracy() -> None:
    study = Study(engines=("fake",), **FAST, epochs=2, accuracy=True)
    fake = run_study(study, Interrupting("training fake/cpu, seed 1, epoch 2"), store=None).results[0]
    assert [(len(training.epochs), training.complete) for training in fake.trainings] == [
        (2, True),
        (1, False),
    ]
    assert fake.accuracy == fake.trainings[0].accuracy
    assert fake.accuracy_std is None
    assert fake.epoch_seconds is not None  # an epoch that was finished is one


def test_a_training_that_was_interrupted_is_not_one_that_failed_to_reach() -> None:
    study = Study(engines=("fake",), **FAST, epochs=3, until={"accuracy": 0.7})
    fake = run_study(study, Interrupting("training fake/cpu, seed 1, epoch 2"), store=None).results[0]
    assert [training.complete for training in fake.trainings] == [True, False]
    assert fake.time_to_accuracy is not None
    assert (fake.time_to_accuracy.reached, fake.time_to_accuracy.seeds) == (1, 1)
    assert fake.time_to_accuracy.seconds is not None


@pytest.mark.parametrize(("wanted", "seconds"), [(0.3, 1.0), (0.5, 3.0), (0.9, None)])
def test_seconds_to_an_accuracy_add_up_the_epochs(wanted: float, seconds: float | None) -> None:
    epochs = [TrainedEpoch(1.0, [1.0], 1.0, 0.3), TrainedEpoch(2.0, [1.0], 1.0, 0.5)]
    assert Training(0, epochs).seconds_to(wanted) == seconds


def test_an_engine_whose_calls_cost_something_trains_an_epoch_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    repository = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", f"{repository}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    row = msgspec.structs.replace(ENGINES["fake"], factory="tests.measuring.costly:Costly")
    monkeypatch.setitem(ENGINES, "fake", row)
    fit = run("fake", processes=1, epochs=1).results[0]
    assert [len(epoch.steps_per_second) for epoch in fit.trainings[0].epochs] == [1]


def test_a_pipeline_may_run_ahead_from_one_part_of_an_epoch_to_the_next(tmp_path: Path) -> None:
    files = small.files(tmp_path)
    worker = InProcess("tests.measuring.test_training:Waiting")
    worker.ask(Prepare(small.job(), str(files.weights), files.epoch), Prepared)
    before = Waiting.waits
    for step in range(3):
        worker.ask(Train(step, 1), Trained)
    assert Waiting.waits == before
    worker.ask(Measure(1), Measured)
    assert Waiting.waits == before + 1


class Waiting(FakeEngine):
    """Counts how often it had to be idle."""

    waits = 0

    def wait_until_idle(self) -> None:
        type(self).waits += 1
