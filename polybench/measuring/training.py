"""Training that is training: whole epochs from fresh weights, one worker at a time, test accuracy in between.

Apart from the rounds, whose blocks all repeat the same steps of the same training: here the training goes on,
epoch after epoch, once for each seed of the initial weights. After each epoch the worker writes down what the
next one depends on, so that a study that is stopped goes on after it, in another process.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from polybench.core import units
from polybench.core.document.training import TrainedEpoch, Training
from polybench.core.errors import CellFailed, Unavailable
from polybench.core.spec import trains
from polybench.measuring.state import StudyState
from polybench.measuring.workers import load, start_worker
from polybench.planning import schedule, shared_files
from polybench.report.cell_record import CellRecord
from polybench.report.document import completed
from polybench.wire.messages import (
    Advanced,
    Evaluate,
    Evaluated,
    Loaded,
    Prepared,
    Restart,
    Train,
    Trained,
)
from polybench.wire.process import WorkerProcess
from polybench.wire.training_messages import GoOn, KeepTraining, TrainingKept

SPANS = 10
"""Parts of an epoch whose speed is told apart, so that a slow start or heat shows; one where calls cost."""


def train(state: StudyState, scratch: Path) -> None:
    """Whole trainings, if the study has them: seed by seed, one cell at a time in random order."""
    study = state.plan.study
    if not trains(study):
        return
    for number in range(study.processes):
        seed = study.seed + number
        weights = shared_files.seeded_weights(state.plan, seed, scratch)
        for record in schedule.order_of_round(state.alive, study.seed, number, 0):
            if any(one.seed == seed and completed(one, study) for one in record.trainings):
                continue  # before the study was resumed
            with state.clock.part("trainings"):
                _Training(state, record, seed).run(weights)
            state.save()


class _Training:
    """One cell from the initial weights of one seed, in a worker of its own."""

    def __init__(self, state: StudyState, record: CellRecord, seed: int) -> None:
        self._state, self._record, self._seed = state, record, seed
        self._study, self._test = state.plan.study, state.files.test
        self._epochs: list[TrainedEpoch] = []

    def run(self, weights: Path) -> None:
        """All epochs, or until the accuracy asked for; each finished epoch is kept in the record.

        Args:
            weights: canonical initial weights, `.npz`.
        """
        with start_worker(self._record, self._state.logs, f"train{self._seed}") as worker:
            try:
                self._train(weights, worker)
            except (CellFailed, Unavailable) as error:
                self._record.fail(error, worker.log)
                worker.kill()

    def _train(self, weights: Path, worker: WorkerProcess) -> None:
        timeout = self._study.timeout
        worker.ask(load(self._record), Loaded, timeout)
        prepared = worker.ask(self._state.prepare(self._record), Prepared, timeout)
        self._spans = 1 if prepared.calls_cost else SPANS
        worker.ask(Restart(str(weights)), Advanced, timeout)
        self._take_up(weights, worker)
        training = Training(self._seed, self._epochs)
        self._record.trainings.append(training)
        while not completed(training, self._study):
            number = len(self._epochs)
            self._state.progress.stage(
                f"training {self._record.cell.name}, seed {self._seed}, epoch {number + 1}"
            )
            self._epochs.append(self._epoch(worker, number, self._state.files.steps_in_epoch))
            if not completed(training, self._study):
                self._keep(worker)
            # The last two stay: there may be no room for the next, or for the checkpoint that tells of it.
            self._forget(number - 1)
        for number in range(len(self._epochs)):
            self._forget(number)

    def _take_up(self, weights: Path, worker: WorkerProcess) -> None:
        """Where another process stopped, if it kept that; otherwise at the beginning."""
        record = self._record
        earlier = [one for one in record.trainings if one.seed == self._seed]
        record.trainings = [one for one in record.trainings if one.seed != self._seed]
        for training in earlier:
            if not training.epochs:
                continue
            words = f"the training of seed {self._seed}"
            files = {number: self._file(number) for number in range(len(training.epochs), 0, -1)}
            done, file = next(((n, one) for n, one in files.items() if one and one.exists()), (0, None))
            if file is None:
                epochs = units.plural(len(training.epochs), "epoch")
                record.warnings.append(f"{words} began again: nothing was kept of {epochs}")
                return
            try:
                worker.ask(GoOn(str(file)), Advanced, self._study.timeout)
            except CellFailed:
                record.warnings.append(f"{words} began again: what was kept of it cannot be taken up")
                worker.ask(Restart(str(weights)), Advanced, self._study.timeout)
                return
            self._epochs = list(training.epochs[:done])
            record.warnings.append(f"{words} went on in another process after {units.plural(done, 'epoch')}")

    def _keep(self, worker: WorkerProcess) -> None:
        """This epoch is not trained again."""
        if (file := self._file(len(self._epochs))) is not None:
            kept = worker.ask(KeepTraining(str(file)), TrainingKept, self._study.timeout)
            if kept.why_not:
                file.unlink(missing_ok=True)
                self._state.warn(f"a training that is stopped may have to begin again: {kept.why_not}")
        self._state.save()

    def _forget(self, epochs: int) -> None:
        """What went on after so many."""
        if (file := self._file(epochs)) is not None:
            file.unlink(missing_ok=True)

    def _file(self, epochs: int) -> Path | None:
        """What is kept of this training after so many of its epochs."""
        cell = self._state.records.index(self._record)
        return self._state.beside(f"training-{cell}-{self._seed}-{epochs}.npz")

    def _epoch(self, worker: WorkerProcess, number: int, steps: int) -> TrainedEpoch:
        timeout = self._study.timeout
        spans: list[tuple[int, Trained]] = []
        # Steps are numbered through all epochs, as a decaying learning rate counts them.
        bounds = [number * steps + steps * span // self._spans for span in range(self._spans + 1)]
        for first, end in itertools.pairwise(bounds):
            if end > first:
                spans.append((end - first, worker.ask(Train(first, end - first), Trained, timeout)))
        accuracy = None
        if self._test is not None:
            accuracy = worker.ask(Evaluate(self._test), Evaluated, timeout).accuracy
        return TrainedEpoch(
            seconds=sum(trained.seconds for _, trained in spans),
            steps_per_second=[taken / trained.seconds for taken, trained in spans],
            loss=spans[-1][1].loss,
            accuracy=accuracy,
        )
