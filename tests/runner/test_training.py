"""Whole trainings with the fake engine in real processes."""

from __future__ import annotations

import itertools
import math
import os
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.engines import ENGINES
from polybench.engines.fake.engine import STEP_SECONDS, STEPS_TO_HALF_CORRECT, FakeEngine
from polybench.errors import BadInput
from polybench.protocol import calls
from polybench.protocol.calls import Trained
from polybench.schema.result import AccuracyDifference, Result, TimeToLoss, TrainedEpoch, Training
from polybench.storage.store import Store
from tests import small_datasets
from tests.runner import studies
from tests.runner.studies import interrupt_at
from tests.simulated_machine import IMAGES as SIMULATED_IMAGES
from tests.simulated_machine import Machine, Script, SimulatedWorker
from tests.worker_sessions import InProcess

STEPS = 2000 // 128
run = partial(studies.run, rounds_per_process=1, steps_per_round=2)


def test_steps_continue_through_all_epochs(monkeypatch: pytest.MonkeyPatch) -> None:
    trained: list[tuple[int, int]] = []
    train = SimulatedWorker.train

    def recorded(worker: SimulatedWorker, first_step: int, steps: int) -> Trained:
        trained.append((first_step, steps))
        return train(worker, first_step, steps)

    monkeypatch.setattr(SimulatedWorker, "train", recorded)
    fields = {"processes": 2, "rounds_per_process": 1, "steps_per_round": 1, "epochs": 3, "seed": 5}
    (torch,) = Machine().measure({"torch": Script()}, **fields).results
    assert [training.seed for training in torch.trainings] == [5, 6]
    each = len(trained) // 2
    for training in (trained[:each], trained[each:]):
        *first_steps, end = 0, *itertools.accumulate(steps for _, steps in training)
        assert [first for first, _ in training] == first_steps
        assert end == 3 * (SIMULATED_IMAGES // 128)


def test_epochs_are_trained_and_evaluated_for_each_seed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    document = run("fake", "fake+slow", store=store, epochs=2, accuracy=True, seed=7)
    for result in document.results:
        assert [training.seed for training in result.trainings] == [7, 8]
        for epochs in (training.epochs for training in result.trainings):
            assert len(epochs) == 2
            expected = [n * STEPS / (n * STEPS + STEPS_TO_HALF_CORRECT) for n in (1, 2)]
            assert [epoch.accuracy for epoch in epochs] == pytest.approx(expected, abs=0.002)
            assert all(len(epoch.steps_per_second) == 10 for epoch in epochs)
        assert result.accuracy == pytest.approx(expected[-1], abs=0.002)
        assert result.accuracy_std == 0
    # The fake engine's accuracy depends only on the number of steps.
    slow = document.result("fake+slow/cpu").accuracy_difference
    assert slow == AccuracyDifference("fake/cpu", 0.0, (0.0, 0.0), epochs=2, seeds=2, p_value=1.0)
    fast = document.result("fake/cpu")
    assert fast.epoch_seconds == pytest.approx(STEPS * STEP_SECONDS, rel=0.2)
    assert fast.step_time is not None
    assert fast.step_time.n == 2 * 2  # from the rounds
    assert store.load("last").result("fake/cpu").trainings == fast.trainings


def test_training_ends_with_the_epoch_that_reaches_the_target_accuracy() -> None:
    fake = run("fake", processes=1, target_accuracy=0.7).result("fake/cpu")
    (training,) = fake.trainings
    accuracies = [epoch.accuracy or 0 for epoch in training.epochs]
    assert accuracies[-2] < 0.7 <= accuracies[-1]
    assert fake.time_to_accuracy is not None
    assert fake.time_to_accuracy.seconds == sum(epoch.seconds for epoch in training.epochs)
    assert fake.accuracy_std is None


def test_training_ends_with_the_epoch_that_reaches_the_target_loss() -> None:
    fake = run("fake", processes=1, target_loss=1.8).result("fake/cpu")
    (training,) = fake.trainings
    losses = [epoch.test_loss or math.inf for epoch in training.epochs]
    assert losses[-2] > 1.8 >= losses[-1]
    assert fake.time_to_loss is not None
    assert fake.time_to_loss.seconds == sum(epoch.seconds for epoch in training.epochs)
    assert (fake.test_loss, fake.test_loss_std) == (losses[-1], None)
    missed = run("fake", processes=1, target_loss=0.1, epochs=1).result("fake/cpu")
    assert missed.time_to_loss == TimeToLoss(0.1, None, 0, 1)


def test_a_study_has_one_target() -> None:
    with pytest.raises(BadInput, match="--target-accuracy and --target-loss"):
        run("fake", target_loss=2.0, target_accuracy=0.5)


def test_a_target_accuracy_that_is_not_reached_has_no_time() -> None:
    fake = run("fake", processes=1, target_accuracy=0.99, epochs=1).result("fake/cpu")
    assert fake.time_to_accuracy is not None
    assert fake.time_to_accuracy.seconds is None
    assert (fake.time_to_accuracy.seeds_reached, fake.time_to_accuracy.seeds) == (0, 1)


def test_a_failed_training_keeps_finished_epochs() -> None:
    failed = run("faulty+diverge", processes=1, epochs=2).result("faulty+diverge/cpu")
    assert failed.status == "failed"
    assert "the loss is nan after" in (failed.reason or "")
    assert failed.is_measured
    assert len(failed.trainings[0].epochs) == 1


def interrupted(**fields: Any) -> Result:
    """Return the result of a study that is interrupted in its second training."""
    return run("fake", listener=interrupt_at("training fake/cpu, seed 1, epoch 2"), **fields).results[0]


def test_accuracy_includes_only_complete_trainings() -> None:
    fake = interrupted(epochs=2, accuracy=True)
    assert [(len(training.epochs), training.complete) for training in fake.trainings] == [(2, True), (1, False)]
    assert fake.accuracy == fake.trainings[0].accuracy
    assert fake.accuracy_std is None
    assert fake.epoch_seconds is not None  # from the finished epochs


def test_an_interrupted_training_does_not_count_as_a_miss_of_the_target() -> None:
    fake = interrupted(epochs=3, target_accuracy=0.7)
    assert [training.complete for training in fake.trainings] == [True, False]
    assert fake.time_to_accuracy is not None
    assert (fake.time_to_accuracy.seeds_reached, fake.time_to_accuracy.seeds) == (1, 1)
    assert fake.time_to_accuracy.seconds is not None


@pytest.mark.parametrize(("target", "seconds"), [(0.3, 1.0), (0.5, 3.0), (0.9, None)])
def test_time_to_accuracy_is_the_sum_of_epochs(target: float, seconds: float | None) -> None:
    epochs = [TrainedEpoch(1.0, [1.0], 1.0, 0.3), TrainedEpoch(2.0, [1.0], 1.0, 0.5)]
    assert Training(0, epochs).time_to_accuracy(target) == seconds


def test_an_engine_with_call_overhead_trains_an_epoch_in_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    repository = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", f"{repository}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    spec = msgspec.structs.replace(ENGINES["fake"], factory="tests.runner.call_overhead_engine:CallOverheadEngine")
    monkeypatch.setitem(ENGINES, "fake", spec)
    fit = run("fake", processes=1, epochs=1).results[0]
    assert [len(epoch.steps_per_second) for epoch in fit.trainings[0].epochs] == [1]


def test_a_pipeline_may_prefetch_across_segments_of_an_epoch(tmp_path: Path) -> None:
    files = small_datasets.files(tmp_path)
    worker = InProcess("tests.runner.test_training:IdleCounter")
    worker.request(calls.prepare(small_datasets.job(), str(files.weights), files.epoch))
    before = IdleCounter.waits
    for step in range(3):
        worker.request(calls.train(step, 1))
    assert IdleCounter.waits == before
    worker.request(calls.measure_block(1))
    assert IdleCounter.waits == before + 1


class IdleCounter(FakeEngine):
    """Counts calls of `wait_until_idle`."""

    waits = 0

    def wait_until_idle(self) -> None:
        type(self).waits += 1
