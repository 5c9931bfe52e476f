"""Whole trainings from initial weights, one worker at a time, evaluated after each epoch.

Timing blocks always repeat the same steps of a training. A whole training continues epoch after epoch, once
for each seed of the initial weights. After each epoch the worker saves the training session, so that another
process can resume an interrupted study from there.
"""

from __future__ import annotations

import itertools
from pathlib import Path

from polybench.errors import ConfigurationFailed, EngineUnavailable
from polybench.log import EpochTrained
from polybench.planning import schedule, shared_files
from polybench.protocol import calls
from polybench.protocol.calls import Trained
from polybench.protocol.process import WorkerProcess
from polybench.results.document import is_complete
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.session import Session
from polybench.runner.workers import load_request, start_worker
from polybench.schema import units
from polybench.schema.options import does_train
from polybench.schema.result import TrainedEpoch, Training

EPOCH_SEGMENTS = 10
"""Segments of an epoch that are timed separately, to show a slow start or throttling.

Engines with call overhead have one segment."""


def train(session: Session) -> None:
    """Run whole trainings, if the study has them: for each seed, all configurations in random order."""
    study = session.plan.study
    if not does_train(study):
        return
    for number in range(study.processes):
        seed = study.seed + number
        weights = shared_files.seeded_weights(session.plan, seed, session.scratch)
        for run in schedule.order_of_round(session.active_runs, study.seed, number, 0):
            if any(training.seed == seed and is_complete(training, study) for training in run.trainings):
                continue  # finished before the study was resumed
            with session.phase_timer.phase("trainings"):
                _TrainingRun(session, run, seed).run(weights)
            session.check_log()


class _TrainingRun:
    """Training of one configuration from the initial weights of one seed, in its own worker."""

    def __init__(self, session: Session, run: ConfigurationRun, seed: int) -> None:
        self._session, self._run, self._seed = session, run, seed
        self._study, self._test = session.plan.study, session.files.test
        self._epochs: list[TrainedEpoch] = []

    def run(self, weights: Path) -> None:
        """Train from these weights all epochs, or until the target; record each finished epoch."""
        with start_worker(self._run, self._session.logs, f"train{self._seed}") as worker:
            try:
                self._train(weights, worker)
            except (ConfigurationFailed, EngineUnavailable) as error:
                self._run.mark_failed(error, worker.log_path)
                worker.kill()

    def _train(self, weights: Path, worker: WorkerProcess) -> None:
        timeout = self._study.timeout
        worker.request(load_request(self._run), timeout)
        prepared = worker.request(self._session.prepare_request(self._run), timeout)
        self._segments = 1 if prepared.has_call_overhead else EPOCH_SEGMENTS
        worker.request(calls.reset_training(str(weights)), timeout)
        self._restore(weights, worker)
        training = Training(self._seed, self._epochs)
        while not is_complete(training, self._study):
            number = len(self._epochs)
            self._session.progress.on_stage(
                f"training {self._run.configuration.name}, seed {self._seed}, epoch {number + 1}"
            )
            epoch = self._run_epoch(worker, number, self._session.files.steps_in_epoch)
            self._epochs.append(epoch)
            name = self._run.configuration.name
            self._run.record(EpochTrained(configuration=name, seed=self._seed, number=number, epoch=epoch))
            if not is_complete(training, self._study):
                self._save(worker)
            # Keeps the last two files, since saving the next one may fail.
            self._delete(number - 1)
        for number in range(len(self._epochs)):
            self._delete(number)

    def _restore(self, weights: Path, worker: WorkerProcess) -> None:
        """Restore the training state of an earlier process, if it was saved."""
        run = self._run
        for training in [training for training in run.trainings if training.seed == self._seed]:
            if not training.epochs:
                continue
            label = f"the training of seed {self._seed}"
            files = {number: self._file(number) for number in range(len(training.epochs), 0, -1)}
            done, file = next(((n, path) for n, path in files.items() if path and path.exists()), (0, None))
            if file is None:
                epochs = units.plural(len(training.epochs), "epoch")
                run.warn(f"{label} restarted: the state after {epochs} was not saved")
                return
            try:
                worker.request(calls.restore_training(str(file)), self._study.timeout)
            except ConfigurationFailed:
                run.warn(f"{label} restarted: its saved state cannot be restored")
                worker.request(calls.reset_training(str(weights)), self._study.timeout)
                return
            self._epochs = list(training.epochs[:done])
            run.warn(f"{label} was resumed in another process after {units.plural(done, 'epoch')}")

    def _save(self, worker: WorkerProcess) -> None:
        """Save the training state and the study."""
        if (file := self._file(len(self._epochs))) is not None:
            file.unlink(missing_ok=True)  # a worker would follow a link
            error = worker.request(calls.save_training(str(file)), self._study.timeout)
            if error:
                file.unlink(missing_ok=True)
                self._session.warn(f"an interrupted training may have to restart: {error}", names=True)
        self._session.check_log()

    def _delete(self, epochs: int) -> None:
        """Delete the training state after this many epochs."""
        if (file := self._file(epochs)) is not None:
            file.unlink(missing_ok=True)

    def _file(self, epochs: int) -> Path | None:
        """Return the file of the training state after this many epochs; None if the study is not saved."""
        configuration = self._session.runs.index(self._run)
        return self._session.state_file(f"training-{configuration}-{self._seed}-{epochs}.npz")

    def _run_epoch(self, worker: WorkerProcess, number: int, steps: int) -> TrainedEpoch:
        timeout = self._study.timeout
        segments: list[tuple[int, Trained]] = []
        # Step numbers continue through all epochs, because the learning rate depends on them.
        bounds = [number * steps + steps * segment // self._segments for segment in range(self._segments + 1)]
        for first, end in itertools.pairwise(bounds):
            if end > first:
                segments.append((end - first, worker.request(calls.train(first, end - first), timeout)))
        test = None if self._test is None else worker.request(calls.evaluate(self._test), timeout)
        return TrainedEpoch(
            seconds=sum(trained.seconds for _, trained in segments),
            steps_per_second=[n / trained.seconds for n, trained in segments],
            loss=segments[-1][1].loss,
            accuracy=None if test is None else test.accuracy,
            test_loss=None if test is None else test.loss,
        )
