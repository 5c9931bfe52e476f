"""Parity check: compares an engine with the float64 reference, tensor by tensor.

The check has two parts:

- float64: both train in float64, independently of each other.
- timed: the engine trains at the precision that is timed. Before each checked step, the reference takes
  over the engine's current weights, so errors cannot accumulate.

Both parts use prescribed dropout masks (see `engines.shared.batches.dropout_masks`). Timed trainings draw their own.
Tensors are read from files and compared one at a time.
"""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import numpy as np

from polybench.data.batch_files import EpochFile, PipelineFiles
from polybench.data.file_cache import FileCache, cache_key
from polybench.engines.job import NO_DEVIATIONS, Job, NumericalConventions
from polybench.errors import ConfigurationFailed
from polybench.parity_check.comparison import (
    ExpectedUpdate,
    State,
    batch_errors,
    find_zero_gradients,
    float64_errors,
    float64_tolerance,
    known_deviations,
    largest_errors,
    largest_failure,
    timed_errors,
    timed_tolerance,
)
from polybench.protocol import calls
from polybench.protocol.calls import AnswerT, Request
from polybench.schema.parity import KnownDeviation, ParityCheck, TensorComparison

_MAX_CACHE_BYTES = 2 << 30
"""Maximum size of the cache of the reference's trainings. An entry of `dlframeworks-cnn` takes 165 MB, one of
`lenet` 3 MB."""

_MAX_CACHED_PARAMETERS = 10_000_000
"""Networks with more parameters are cached for one study only. A cache entry has the float64 weights and
gradients of three steps; for a network of this size that is 480 MB."""


Losses = dict[int, float | None]
"""Loss by cached step; None if it is not finite."""


class WorkerSession(Protocol):
    """Sends requests to a worker process or, in tests, to a worker in this process."""

    def request(self, request: Request[AnswerT], timeout: float) -> AnswerT:
        """Send a request and return its answer; raises ConfigurationFailed and EngineUnavailable."""
        ...


class ReferenceFailed(Exception):
    """The float64 reference crashed or timed out, so the check has no result."""


class CheckRequest(NamedTuple):
    """Specifies a parity check of `job`, the job as it is timed, on the first `steps` + 1 batches of `epoch`.

    `timeout` is the maximum wait for each answer, in seconds. `pipeline_files` are the input of the engine's own
    pipeline, which has to deliver the batches of `epoch`; None if the engine reads `epoch` itself.
    """

    job: Job
    weights: Path
    epoch: EpochFile
    steps: int
    timeout: float
    pipeline_files: PipelineFiles | None = None


class ParityChecker:
    """Checks engines against one reference session and caches the states of the reference."""

    def __init__(self, reference: WorkerSession, scratch: Path, cache: Path) -> None:
        self._reference = _ReferenceSession(reference)
        self._scratch = scratch
        self._cache = FileCache(cache, Losses, _MAX_CACHE_BYTES)

    def check(self, engine: WorkerSession, request: CheckRequest) -> ParityCheck:
        """Run both parts of the check in a session that has loaded its framework.

        Raises ConfigurationFailed if the engine failed, and ReferenceFailed if the reference failed. Then this
        checker cannot be used again.
        """
        # The check's batches can be smaller than the timed ones. Dropout masks must fit the batch.
        workload = msgspec.structs.replace(request.job.workload, batch_size=request.epoch.batch_size)
        request = request._replace(job=msgspec.structs.replace(request.job, workload=workload, dropout="given"))
        folder = Path(tempfile.mkdtemp(dir=self._scratch))
        tolerance = float64_tolerance(request.job.model)
        try:
            float64, zero_gradients = self._check_float64(engine, request, folder, tolerance)
            timed, conventions = self._check_timed(engine, request, folder, zero_gradients)
            # Wrong batches make all other tensors wrong, so they are reported first.
            batches = [tensor for tensor in timed if tensor.kind == "batch"]
            return ParityCheck(
                status="pass" if all(tensor.passed for tensor in float64 + timed) else "fail",
                reason=largest_failure(batches) or largest_failure(float64 + timed),
                steps=request.steps,
                batch_size=request.epoch.batch_size,
                float64=largest_errors(float64, tolerance),
                timed=largest_errors(timed, timed_tolerance(request.job.model, request.job.workload)),
                known_deviations=self._known_deviations(request, conventions, folder, zero_gradients),
                tensors=float64 + timed,
            )
        finally:
            shutil.rmtree(folder)

    def _check_float64(
        self, engine: WorkerSession, request: CheckRequest, folder: Path, tolerance: Mapping[str, float]
    ) -> tuple[list[TensorComparison], frozenset[str]]:
        """Return the comparisons and the names of the tensors whose gradient is zero."""
        job = msgspec.structs.replace(request.job, dtype="float64")
        conventions = _prepare(engine, request, job, request.weights, request.pipeline_files)
        expected = self._reference_run(request, conventions, folder / "free")
        zero_gradients = find_zero_gradients([state.gradients for state in expected.values()], tolerance["gradient"])
        optimizer = request.job.workload.optimizer
        comparisons = [
            comparison
            for step, actual in _run_training(engine, request, folder).items()
            for comparison in float64_errors(step, actual, expected[step], tolerance, optimizer, zero_gradients)
        ]
        return comparisons, zero_gradients

    def _reference_run(
        self, request: CheckRequest, conventions: NumericalConventions, folder: Path
    ) -> dict[int, State]:
        """Return the reference's states by step, from the cache if it has them."""
        job = msgspec.structs.replace(request.job, device="cpu", dtype="float64", variants=(), conventions=conventions)

        def train() -> Losses:
            _prepare(self._reference, request, job, request.weights)
            states = _run_training(self._reference, request, folder)
            return {step: _finite_loss(state) for step, state in states.items()}

        folder.mkdir()
        large = request.job.model.total_parameters() > _MAX_CACHED_PARAMETERS
        cache = FileCache(self._scratch / "reference", Losses, _MAX_CACHE_BYTES) if large else self._cache
        files = (request.weights, Path(request.epoch.images_path), Path(request.epoch.labels_path))
        losses = cache.fetch(training_key(job, request.steps, files), folder, train)
        return {step: _state(folder, step, math.nan if loss is None else loss) for step, loss in losses.items()}

    def _check_timed(
        self, engine: WorkerSession, request: CheckRequest, folder: Path, zero_gradients: frozenset[str]
    ) -> tuple[list[TensorComparison], NumericalConventions]:
        conventions = _prepare(engine, request, request.job, request.weights, request.pipeline_files)
        tolerance = timed_tolerance(request.job.model, request.job.workload)
        optimizer = request.job.workload.optimizer
        update = ExpectedUpdate(request.job.model, optimizer, folder / "updates", tolerance, zero_gradients)
        tensors: list[TensorComparison] = []
        for step in range(request.steps + 1):
            if request.pipeline_files is not None:
                batch = folder / "batch.npz"
                engine.request(calls.write_batch(step, str(batch)), request.timeout)
                tensors += batch_errors(step, batch, request.epoch)
            actual = _snapshot(engine, request, folder / "timed", step)
            if step:
                tensors += update.errors(step, actual.weights)
            expected = self._reference_state(request, conventions, actual.weights, step, folder / "expected")
            tensors += timed_errors(request.job.workload.precision, step, actual, expected, tolerance, zero_gradients)
            if step < request.steps:
                update.apply(step, actual)
                engine.request(calls.run_steps(step, 1), request.timeout)
        return tensors, conventions

    def _reference_state(
        self, request: CheckRequest, conventions: NumericalConventions, weights: Path, step: int, folder: Path
    ) -> State:
        """Compute the reference's loss and gradients at the engine's current weights."""
        job = msgspec.structs.replace(request.job, device="cpu", dtype="float64", variants=(), conventions=conventions)
        _prepare(self._reference, request, job, weights)
        return _snapshot(self._reference, request, folder, step)

    def _known_deviations(
        self, request: CheckRequest, conventions: NumericalConventions, folder: Path, zero_gradients: frozenset[str]
    ) -> list[KnownDeviation]:
        """Measure how far each declared convention, applied alone, moves the first step's results."""
        rules = dict(conventions.each_rule())
        if not rules:
            return []
        exact = self._first_step(request, NO_DEVIATIONS, folder / "exact")
        declared = {name: self._first_step(request, rule, folder / name) for name, rule in rules.items()}
        return [
            deviation
            for name, rule in rules.items()
            for deviation in known_deviations(rule, declared[name], exact, zero_gradients)
        ]

    def _first_step(self, request: CheckRequest, conventions: NumericalConventions, folder: Path) -> State:
        """Return the reference's first gradients and the weights and running statistics after that step."""
        before = self._reference_state(request, conventions, request.weights, 0, folder)
        self._reference.request(calls.run_steps(0, 1), request.timeout)
        return before._replace(weights=_snapshot(self._reference, request, folder, 1).weights)


class _ReferenceSession(NamedTuple):
    """Wraps the reference's session to distinguish its failures from those of the engine."""

    session: WorkerSession

    def request(self, request: Request[AnswerT], timeout: float) -> AnswerT:
        try:
            return self.session.request(request, timeout)
        except ConfigurationFailed as error:
            raise ReferenceFailed(str(error)) from error


def _prepare(
    session: WorkerSession, request: CheckRequest, job: Job, weights: Path, pipeline_files: PipelineFiles | None = None
) -> NumericalConventions:
    message = calls.prepare(job, str(weights), request.epoch, pipeline=pipeline_files)
    return session.request(message, request.timeout).conventions


def _run_training(session: WorkerSession, request: CheckRequest, folder: Path) -> dict[int, State]:
    """Train without corrections in between and return the states at steps 0, 1 and the last."""
    states = {}
    for step in range(request.steps + 1):
        if step in (0, 1, request.steps):
            states[step] = _snapshot(session, request, folder, step)
        if step < request.steps:
            session.request(calls.run_steps(step, 1), request.timeout)
    return states


def _snapshot(session: WorkerSession, request: CheckRequest, folder: Path, step: int) -> State:
    folder.mkdir(exist_ok=True)
    state = _state(folder, step, math.nan)
    message = calls.take_snapshot(step, str(state.gradients), str(state.weights))
    loss = session.request(message, request.timeout)
    return state._replace(loss=math.nan if loss is None else loss)


def _state(folder: Path, step: int, loss: float) -> State:
    return State(loss, folder / f"{step}.gradients.npz", folder / f"{step}.weights.npz")


def _finite_loss(state: State) -> float | None:
    return state.loss if math.isfinite(state.loss) else None


def training_key(job: Job, steps: int, files: Iterable[Path]) -> str:
    """Return a hash of everything that determines the results of a reference training.

    The reference always computes in float64. The contents of batches and network (`files`) determine the
    result; their names do not.
    """
    workload = msgspec.structs.replace(
        job.workload,
        dataset="",
        model="",
        precision="fp32",
        threads=1,
        input="preload",
        loader_workers=None,
        augment=False,
        replicas=1,
    )
    job = msgspec.structs.replace(job, workload=workload, model=job.model.without_name())
    return cache_key(job, steps, np.__version__, *files, *source_files())


def source_files() -> list[Path]:
    """Return all Python and Julia files of polybench; a list of only the relevant ones would go stale."""
    package = Path(__file__).parents[1]
    julia = package.parent / "julia"  # exists in a checkout; an installed package contains src and ext
    julia_files = (*package.rglob("*.jl"), *julia.glob("src/*.jl"), *julia.glob("ext/*.jl"))
    return sorted([*package.rglob("*.py"), *julia_files])
