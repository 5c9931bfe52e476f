"""The identity check: that an engine computes what the reference computes, in two parts.

(A) The algorithm: the engine in float64, running freely, against the reference in float64.
(B) The timed configuration: the engine at its own precision; before each checked step the
    reference takes the engine's current weights, so errors cannot grow from step to step.

In both, dropout masks are given, see `engines.support.dropout_masks`; what is timed draws its own.

Tensors are compared one at a time, from files.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

import msgspec

from polybench.core.document.identity import Deviation, Parity, TensorError
from polybench.core.errors import CellFailed
from polybench.core.job import EXACT, Conventions, Job
from polybench.data.epoch import EpochFile
from polybench.data.stream import StreamFile
from polybench.identity.batches import batch_errors
from polybench.identity.reference_cache import Losses, reference_cache, training_key
from polybench.identity.tensors import (
    ExpectedUpdate,
    State,
    algorithm_errors,
    algorithm_tolerance,
    deviations,
    summarize,
    timed_errors,
    timed_tolerance,
    worst_failure,
)
from polybench.identity.vanishing import vanishing
from polybench.wire.messages import (
    Advance,
    Advanced,
    BatchWritten,
    Prepare,
    Prepared,
    Request,
    SnapshotTaken,
    TakeBatch,
    TakeSnapshot,
)

A = TypeVar("A", bound=msgspec.Struct)

_LARGEST_CACHED = 10_000_000
"""Parameters: three states of a network are kept as float64, weights and gradients, here 480 MB. Those of a
larger one are kept for one study only."""


class Session(Protocol):
    """Something that answers requests: a worker process, or in tests a worker in this process."""

    def ask(self, request: Request, kind: type[A], timeout: float) -> A:
        """An answer of this kind, or CellFailed or Unavailable."""
        ...


class ReferenceFailed(Exception):
    """The reference, not the engine, died or hung; whether the engine is identical is not known."""


class Task(NamedTuple):
    """What is checked: `job` as it is timed, on the first `steps` + 1 batches of `epoch`.

    With a `stream` the engine draws them from its input pipeline, which must come to the same.
    """

    job: Job
    weights: Path
    epoch: EpochFile
    steps: int
    timeout: float
    stream: StreamFile | None = None


class Checker:
    """Checks engines against one reference session; float64 reference states are kept by hash."""

    def __init__(self, reference: Session, scratch: Path, cache: Path) -> None:
        self._reference = _Reference(reference)
        self._scratch = scratch
        self._cache = reference_cache(cache)

    def check(self, engine: Session, task: Task) -> Parity:
        """Both parts, for an engine session that has loaded its framework.

        Raises:
            CellFailed: the engine could not be brought to answer.
            ReferenceFailed: the reference could not; this checker is of no more use.
        """
        # The check's batches may be smaller than those that are timed, and masks are for a whole batch.
        workload = msgspec.structs.replace(task.job.workload, batch_size=task.epoch.batch_size)
        task = task._replace(job=msgspec.structs.replace(task.job, workload=workload, dropout="given"))
        folder = Path(tempfile.mkdtemp(dir=self._scratch))
        tolerance = algorithm_tolerance(task.job.model)
        try:
            algorithm, zero = self._algorithm(engine, task, folder, tolerance)
            timed, conventions = self._timed(engine, task, folder, zero)
            # Where the batches are wrong, nothing else can be right.
            batches = [tensor for tensor in timed if tensor.kind == "batch"]
            return Parity(
                status="pass" if all(tensor.passed for tensor in algorithm + timed) else "fail",
                reason=worst_failure(batches) or worst_failure(algorithm + timed),
                steps=task.steps,
                batch_size=task.epoch.batch_size,
                algorithm=summarize(algorithm, tolerance),
                timed=summarize(timed, timed_tolerance(task.job.model, task.job.workload)),
                deviations=self._deviations(task, conventions, folder, zero),
                tensors=algorithm + timed,
            )
        finally:
            shutil.rmtree(folder)

    def _algorithm(
        self, engine: Session, task: Task, folder: Path, tolerance: Mapping[str, float]
    ) -> tuple[list[TensorError], frozenset[str]]:
        """With the names of the tensors whose gradient vanishes."""
        job = msgspec.structs.replace(task.job, dtype="float64")
        conventions = _prepare(engine, task, job, task.weights, task.stream)
        expected = self._free_run(task, conventions, folder / "free")
        zero = vanishing([state.gradients for state in expected.values()], tolerance["gradient"])
        optimizer = task.job.workload.optimizer
        errors = [
            error
            for step, got in _run_freely(engine, task, folder).items()
            for error in algorithm_errors(step, got, expected[step], tolerance, optimizer, zero)
        ]
        return errors, zero

    def _free_run(self, task: Task, conventions: Conventions, folder: Path) -> dict[int, State]:
        """The reference's states, from the cache if the same training was asked for before."""
        job = msgspec.structs.replace(
            task.job, device="cpu", dtype="float64", variants=(), conventions=conventions
        )

        def train() -> Losses:
            _prepare(self._reference, task, job, task.weights)
            states = _run_freely(self._reference, task, folder)
            return {step: _loss_or_null(state) for step, state in states.items()}

        folder.mkdir()
        large = task.job.model.total_parameters() > _LARGEST_CACHED
        cache = reference_cache(self._scratch / "reference") if large else self._cache
        files = (task.weights, Path(task.epoch.images_path), Path(task.epoch.labels_path))
        losses = cache.fetch(training_key(job, task.steps, files), folder, train)
        return {
            step: _state(folder, step, math.nan if loss is None else loss) for step, loss in losses.items()
        }

    def _timed(
        self, engine: Session, task: Task, folder: Path, zero: frozenset[str]
    ) -> tuple[list[TensorError], Conventions]:
        conventions = _prepare(engine, task, task.job, task.weights, task.stream)
        tolerance = timed_tolerance(task.job.model, task.job.workload)
        optimizer = task.job.workload.optimizer
        update = ExpectedUpdate(task.job.model, optimizer, folder / "updates", tolerance, zero)
        tensors: list[TensorError] = []
        for step in range(task.steps + 1):
            if task.stream is not None:
                batch = folder / "batch.npz"
                engine.ask(TakeBatch(step, str(batch)), BatchWritten, task.timeout)
                tensors += batch_errors(step, batch, task.epoch)
            got = _snapshot(engine, task, folder / "timed", step)
            if step:
                tensors += update.errors(step, got.weights)
            expected = self._at_weights(task, conventions, got.weights, step, folder / "expected")
            tensors += timed_errors(task.job.workload.precision, step, got, expected, tolerance, zero)
            if step < task.steps:
                update.take(step, got)
                engine.ask(Advance(step, 1), Advanced, task.timeout)
        return tensors, conventions

    def _at_weights(
        self, task: Task, conventions: Conventions, weights: Path, step: int, folder: Path
    ) -> State:
        """The reference's loss and gradient at weights that the engine has reached."""
        job = msgspec.structs.replace(
            task.job, device="cpu", dtype="float64", variants=(), conventions=conventions
        )
        _prepare(self._reference, task, job, weights)
        return _snapshot(self._reference, task, folder, step)

    def _deviations(
        self, task: Task, conventions: Conventions, folder: Path, zero: frozenset[str]
    ) -> list[Deviation]:
        """How far each declared convention alone is from the exact rules, in the first step."""
        rules = dict(conventions.alone())
        if not rules:
            return []
        exact = self._first_step(task, EXACT, folder / "exact")
        declared = {name: self._first_step(task, rule, folder / name) for name, rule in rules.items()}
        return [
            found for name, rule in rules.items() for found in deviations(rule, declared[name], exact, zero)
        ]

    def _first_step(self, task: Task, conventions: Conventions, folder: Path) -> State:
        """The reference's first gradients, with the weights and running statistics that they lead to."""
        before = self._at_weights(task, conventions, task.weights, 0, folder)
        self._reference.ask(Advance(0, 1), Advanced, task.timeout)
        return before._replace(weights=_snapshot(self._reference, task, folder, 1).weights)


class _Reference(NamedTuple):
    """A session whose failures are told from those of the engine."""

    session: Session

    def ask(self, request: Request, kind: type[A], timeout: float) -> A:
        try:
            return self.session.ask(request, kind, timeout)
        except CellFailed as error:
            raise ReferenceFailed(str(error)) from error


def _prepare(
    session: Session, task: Task, job: Job, weights: Path, stream: StreamFile | None = None
) -> Conventions:
    request = Prepare(job, str(weights), task.epoch, stream=stream)
    return session.ask(request, Prepared, task.timeout).conventions


def _run_freely(session: Session, task: Task, folder: Path) -> dict[int, State]:
    """States at steps 0, 1 and the last, without interference in between."""
    states = {}
    for step in range(task.steps + 1):
        if step in (0, 1, task.steps):
            states[step] = _snapshot(session, task, folder, step)
        if step < task.steps:
            session.ask(Advance(step, 1), Advanced, task.timeout)
    return states


def _snapshot(session: Session, task: Task, folder: Path, step: int) -> State:
    folder.mkdir(exist_ok=True)
    state = _state(folder, step, math.nan)
    request = TakeSnapshot(step, str(state.gradients), str(state.weights))
    answer = session.ask(request, SnapshotTaken, task.timeout)
    return state._replace(loss=math.nan if answer.loss is None else answer.loss)


def _state(folder: Path, step: int, loss: float) -> State:
    return State(loss, folder / f"{step}.gradients.npz", folder / f"{step}.weights.npz")


def _loss_or_null(state: State) -> float | None:
    return state.loss if math.isfinite(state.loss) else None
