"""Training that is training: whole epochs from fresh weights, one worker at a time, test accuracy in between.

Apart from the rounds of `replicate`, whose blocks all repeat the same steps of the same training: here the
training goes on, epoch after epoch, once for each seed of the initial weights.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

from polybench.core.document.training import TrainedEpoch, Training
from polybench.core.errors import CellFailed, Unavailable
from polybench.core.spec import Study, most_epochs
from polybench.data.epoch import EpochFile
from polybench.planning.plan import row
from polybench.report.cell_record import CellRecord
from polybench.wire.messages import Evaluate, Evaluated, Load, Prepare, Restart, Train, Trained
from polybench.wire.process import WorkerProcess

SPANS = 10
"""Parts of an epoch whose speed is told apart, so that a slow start or heat shows."""


class Trainer:
    """Trains one cell for one seed, in a worker of its own."""

    def __init__(
        self,
        study: Study,
        prepare: Callable[[CellRecord], Prepare],
        test: EpochFile | None,
        logs: Path,
    ) -> None:
        self._study = study
        self._prepare = prepare
        self._test = test
        self._logs = logs

    def train(self, record: CellRecord, seed: int, weights: Path, on_epoch: Callable[[int], None]) -> None:
        """All epochs, or until the accuracy asked for; each finished epoch is kept in the record.

        Args:
            record: gets a `Training`, growing by an epoch at a time.
            seed: of `weights`.
            weights: canonical initial weights, `.npz`.
            on_epoch: called before each epoch with its number from 0.
        """
        log = self._logs / f"{record.cell.name.replace('/', '_')}.train{seed}.log"
        with WorkerProcess(record.environment, log) as worker:
            try:
                self._train(record, seed, weights, worker, on_epoch)
            except (CellFailed, Unavailable) as error:
                record.fail(error, log)
                worker.kill()

    def _train(
        self,
        record: CellRecord,
        seed: int,
        weights: Path,
        worker: WorkerProcess,
        on_epoch: Callable[[int], None],
    ) -> None:
        timeout, prepare = self._study.timeout, self._prepare(record)
        worker.ask(Load(row(record.cell).factory), timeout)
        worker.ask(prepare, timeout)
        worker.ask(Restart(str(weights)), timeout)
        epochs: list[TrainedEpoch] = []
        record.trainings.append(Training(seed, epochs))
        for number in range(most_epochs(self._study)):
            on_epoch(number)
            epochs.append(self._epoch(worker, number, prepare.steps_in_epoch))
            if self._reached(epochs[-1]):
                return

    def _epoch(self, worker: WorkerProcess, number: int, steps: int) -> TrainedEpoch:
        timeout = self._study.timeout
        spans: list[tuple[int, Trained]] = []
        # Steps are numbered through all epochs, as a decaying learning rate counts them.
        bounds = [number * steps + steps * span // SPANS for span in range(SPANS + 1)]
        for first, end in itertools.pairwise(bounds):
            if end > first:
                trained = worker.ask(Train(first, end - first), timeout)
                assert isinstance(trained, Trained)
                spans.append((end - first, trained))
        accuracy = None
        if self._test is not None:
            evaluated = worker.ask(Evaluate(self._test), timeout)
            assert isinstance(evaluated, Evaluated)
            accuracy = evaluated.accuracy
        return TrainedEpoch(
            seconds=sum(trained.seconds for _, trained in spans),
            steps_per_second=[taken / trained.seconds for taken, trained in spans],
            loss=spans[-1][1].loss,
            accuracy=accuracy,
        )

    def _reached(self, epoch: TrainedEpoch) -> bool:
        wanted = self._study.until.get("accuracy")
        return wanted is not None and epoch.accuracy is not None and epoch.accuracy >= wanted
