"""Parity check: compares an engine with the float64 reference, tensor by tensor.

The check has two parts:

- float64: both train in float64, independently of each other, on small batches, with a step at later changes of the
  learning rate.
- timed: the engine runs two steps at the precision and the batch size that are timed, then counts correct predictions.
  Before each step, the reference takes over the engine's current weights, so errors cannot accumulate.

Both parts use prescribed dropout masks (see `engines.shared.batches.dropout_masks`). Timed trainings draw their own,
which `own_dropout` checks. Tensors are read from files and compared one at a time.

If the job is a forward pass, both parts compare the logits of the first batches at the same weights instead.
"""

from __future__ import annotations

import functools
import math
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from polybench.data.batch_files import EpochFile, PipelineFiles, repeat_rows
from polybench.data.batches import repeated_rows
from polybench.data.file_cache import FileCache, cache_key
from polybench.engines.job import NO_DEVIATIONS, Job, NumericalConventions
from polybench.engines.source import Source
from polybench.errors import ConfigurationFailed
from polybench.parity_check.comparison import (
    FLOAT64_TOLERANCE,
    ExpectedUpdate,
    State,
    allow_for_rounding,
    batch_errors,
    divides_by_gradient,
    evaluation_errors,
    find_zero_gradients,
    float32_errors,
    float64_errors,
    float64_tolerance,
    free_errors,
    known_deviations,
    largest_errors,
    largest_failure,
    logits_error,
    loss_error,
    program_tolerance,
    statistics_errors,
    timed_errors,
    timed_tolerance,
    write_chosen_labels,
    write_varied_weights,
)
from polybench.parity_check.own_dropout import own_dropout_errors
from polybench.protocol import calls
from polybench.protocol.calls import AnswerT, Request
from polybench.schema.parity import ComparisonKind, KnownDeviation, ParityCheck, TensorComparison

_MAX_CACHE_BYTES = 2 << 30
"""Maximum size of the cache of the reference's trainings. An entry of `dlframeworks-cnn` takes 165 MB, one of
`lenet` 3 MB."""

_COUNTED_IMAGES = 64
"""Maximum number of images whose predictions are counted, if a batch is not larger."""

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


class ProgramCheck(NamedTuple):
    """What a user's program offers to a check besides its losses; no program has gradients."""

    has_float64: bool
    has_weights: bool

    @classmethod
    def of(cls, source: Source) -> ProgramCheck:
        """Return what a program offers."""
        return cls(source.has_dtype, "weights" in source.functions)


class CheckRequest(NamedTuple):
    """Specifies a parity check of `job`, the job as it is timed, on the first `steps` + 1 batches of `epoch`.

    These batches are small. The timed part repeats their images up to the job's batch size. `timeout` is the maximum
    wait for each answer, in seconds. `pipeline_files` are the input of the engine's own pipeline, which has to deliver
    the batches of `epoch`; None if the engine reads `epoch` itself. `program` is None for an engine.
    """

    job: Job
    weights: Path
    epoch: EpochFile
    steps: int
    timeout: float
    pipeline_files: PipelineFiles | None = None
    program: ProgramCheck | None = None


class ParityChecker:
    """Checks engines against one reference session and caches the states of the reference."""

    def __init__(self, reference: WorkerSession, scratch: Path, cache: Path) -> None:
        self._reference = _ReferenceSession(reference)
        self._scratch = scratch
        self._cache = FileCache(cache, Losses, _MAX_CACHE_BYTES)

    @functools.cached_property
    def _source_digest(self) -> str:
        return cache_key(*source_files())  # reads all of polybench, so once for all configurations

    def check(self, engine: WorkerSession, request: CheckRequest) -> ParityCheck:
        """Run both parts of the check in a session that has loaded its framework.

        Raises ConfigurationFailed if the engine failed, and ReferenceFailed if the reference failed. Then this
        checker cannot be used again.
        """
        folder = Path(tempfile.mkdtemp(dir=self._scratch))
        workload, is_program = request.job.workload, request.program is not None
        if not (workload.is_forward_pass or is_program):
            request = request._replace(job=msgspec.structs.replace(request.job, dropout="given"))
        model = request.job.model
        tolerance = program_tolerance(model) if is_program else float64_tolerance(model, workload)
        deviations: list[KnownDeviation] = []
        try:
            small, large = (
                _with_batch_size(request, size, folder) for size in (request.epoch.batch_size, workload.batch_size)
            )
            if request.program is not None:
                float64, timed = self._check_program(engine, small, large, folder, request.program)
            elif workload.is_forward_pass:
                float64, timed = self._check_forward_pass(engine, small, large, folder)
            else:
                float64, zero_gradients = self._check_float64(engine, small, folder, tolerance)
                timed, conventions = self._check_timed(engine, large, folder, zero_gradients, small.epoch)
                deviations = self._known_deviations(large, conventions, folder, zero_gradients)
                timed += own_dropout_errors(
                    functools.partial(engine.request, timeout=request.timeout), request.job, folder / "dropout"
                )
            # Wrong batches make all other tensors wrong, so they are reported first.
            batches = [tensor for tensor in timed if tensor.kind == "batch"]
            return ParityCheck(
                status="pass" if all(tensor.passed for tensor in float64 + timed) else "fail",
                reason=largest_failure(batches) or largest_failure(float64 + timed),
                steps=request.steps,
                batch_size=small.epoch.batch_size,
                timed_batch_size=large.epoch.batch_size,
                float64=largest_errors(float64, tolerance),
                timed=largest_errors(timed, timed_tolerance(request.job.model, workload)),
                known_deviations=deviations,
                tensors=float64 + timed,
            )
        finally:
            shutil.rmtree(folder)

    def _check_program(
        self, engine: WorkerSession, small: CheckRequest, large: CheckRequest, folder: Path, program: ProgramCheck
    ) -> tuple[list[TensorComparison], list[TensorComparison]]:
        """Compare the losses and weights of a user's program, in float64 if it has that, and as timed.

        A wrong gradient shows in the weights after the step. Without weights, it shows in the losses of later steps, in
        a training without corrections.
        """
        double = small._replace(job=msgspec.structs.replace(small.job, dtype="float64"))
        float64 = self._free_errors(engine, "float64", double, folder, program) if program.has_float64 else []
        large = large._replace(steps=min(2, large.steps))
        # An optimizer that divides by the gradient makes full updates of rounding errors.
        if program.has_weights and not divides_by_gradient(large.job.workload.optimizer):
            return float64, self._corrected_errors(engine, large, folder)
        return float64, self._free_errors(engine, "timed", large, folder, program)

    def _free_errors(
        self,
        engine: WorkerSession,
        part: Literal["float64", "timed"],
        request: CheckRequest,
        folder: Path,
        program: ProgramCheck,
    ) -> list[TensorComparison]:
        """Compare a program with the reference while both train on their own."""
        conventions = _prepare(engine, request, request.job, request.weights, request.pipeline_files)
        expected = self._reference_run(request, conventions, folder / f"free {part}")
        gradients = [state.gradients for state in expected.values()]
        zero_gradients = find_zero_gradients(gradients, FLOAT64_TOLERANCE["gradient"])
        actual = _run_training(engine, request, folder / part, changes=[])
        return [
            error
            for step, state in actual.items()
            for error in free_errors(
                part, step, state, expected[step], request.job, zero_gradients, has_weights=program.has_weights
            )
        ]

    def _corrected_errors(self, engine: WorkerSession, request: CheckRequest, folder: Path) -> list[TensorComparison]:
        """Compare a program with the reference, which takes over its weights before each step."""
        job = request.job
        conventions = _prepare(engine, request, job, request.weights, request.pipeline_files)
        tolerance, optimizer = timed_tolerance(job.model, job.workload), job.workload.optimizer
        actual = _snapshot(engine, request, folder / "timed", 0)
        errors: list[TensorComparison] = []
        update: ExpectedUpdate | None = None
        for step in range(request.steps):
            weights = actual.weights if step else request.weights
            expected = self._reference_state(request, conventions, weights, step, folder / f"expected{step}")
            errors.append(loss_error("loss", step, actual.loss, expected.loss, tolerance["loss"]))
            if update is None:
                zero = find_zero_gradients([expected.gradients], FLOAT64_TOLERANCE["gradient"])
                arguments = job.model, optimizer, folder / "updates", tolerance, zero
                update = ExpectedUpdate(*arguments, update_tolerance=tolerance["gradient"])
            update.apply(step, actual._replace(gradients=expected.gradients), expected)
            engine.request(calls.run_steps(step, 1), request.timeout)
            actual = _snapshot(engine, request, folder / "timed", step + 1)
            errors += update.errors(step + 1, actual.weights)
        return errors

    def _check_forward_pass(
        self, engine: WorkerSession, small: CheckRequest, large: CheckRequest, folder: Path
    ) -> tuple[list[TensorComparison], list[TensorComparison]]:
        """Compare the logits of the first batches, in float64 and as timed, from the function that is timed."""
        weights, logits = folder / "varied.npz", folder / "logits.npz"
        write_varied_weights(small.weights, weights)
        _prepare(self._reference, small, _reference_job(small, NO_DEVIATIONS), weights)
        self._reference.request(calls.write_logits(small.epoch, str(logits)), small.timeout)
        with np.load(logits) as file:
            expected = file["logits"]
        expected = expected.reshape(small.epoch.steps, small.epoch.batch_size, *expected.shape[1:])
        rows = repeated_rows(large.epoch.batch_size, small.epoch.batch_size)
        return (
            self._logits_errors(engine, "float64", small._replace(weights=weights), expected, logits),
            self._logits_errors(engine, "timed", large._replace(weights=weights), expected[:, rows], logits),
        )

    def _logits_errors(
        self,
        engine: WorkerSession,
        part: Literal["float64", "timed"],
        request: CheckRequest,
        expected: NDArray[Any],
        file: Path,
    ) -> list[TensorComparison]:
        """Run a step on each batch, and compare its logits, which `file` receives, with the expected ones."""
        job = msgspec.structs.replace(request.job, dtype="float64") if part == "float64" else request.job
        tolerances = float64_tolerance if part == "float64" else timed_tolerance
        tolerance = tolerances(job.model, job.workload)["logits"]
        _prepare(engine, request, job, request.weights, request.pipeline_files)
        tensors: list[TensorComparison] = []
        for step in range(request.steps):
            if request.pipeline_files is not None:
                engine.request(calls.write_batch(step, str(file)), request.timeout)
                tensors += batch_errors(step, file, request.epoch)
            engine.request(calls.run_steps(step, 1), request.timeout)
            engine.request(calls.write_step_logits(str(file)), request.timeout)
            tensors.append(logits_error(part, step, file, expected[step], tolerance))
        return tensors

    def _check_float64(
        self, engine: WorkerSession, request: CheckRequest, folder: Path, tolerance: Mapping[str, float]
    ) -> tuple[list[TensorComparison], frozenset[str]]:
        """Return the comparisons and the names of the tensors whose gradient is zero."""
        job = msgspec.structs.replace(request.job, dtype="float64")
        conventions = _prepare(engine, request, job, request.weights, request.pipeline_files)
        expected = self._reference_run(request, conventions, folder / "free")
        zero_gradients = find_zero_gradients([state.gradients for state in expected.values()], tolerance["gradient"])
        optimizer = request.job.workload.optimizer
        comparisons: list[TensorComparison] = []
        for step, actual in _run_training(engine, request, folder).items():
            kind: ComparisonKind = "weight" if step <= request.steps else "schedule"
            steps = range(step) if kind == "weight" else [*range(request.steps), *_later_changes(request)]
            comparisons += float64_errors(steps, actual, expected[step], tolerance, optimizer, zero_gradients, kind)
        return comparisons, zero_gradients

    def _reference_run(
        self, request: CheckRequest, conventions: NumericalConventions, folder: Path
    ) -> dict[int, State]:
        """Return the reference's states by step in a training without corrections."""

        job = _reference_job(request, conventions)

        def train() -> Losses:
            _prepare(self._reference, request, job, request.weights)
            states = _run_training(self._reference, request, folder)
            return {step: _finite_loss(state) for step, state in states.items()}

        return self._fetch(request, job, request.steps, folder, train)

    def _fetch(
        self, request: CheckRequest, job: Job, steps: int, folder: Path, train: Callable[[], Losses]
    ) -> dict[int, State]:
        """Return the states that `train` writes to a new folder, from the cache if it has them."""
        folder.mkdir()
        large = request.job.model.total_parameters() > _MAX_CACHED_PARAMETERS
        cache = FileCache(self._scratch / "reference", Losses, _MAX_CACHE_BYTES) if large else self._cache
        files = (request.weights, Path(request.epoch.images_path), Path(request.epoch.labels_path))
        losses = cache.fetch(training_key(job, steps, self._source_digest, *files), folder, train)
        return _loaded(folder, losses)

    def _check_timed(
        self,
        engine: WorkerSession,
        request: CheckRequest,
        folder: Path,
        zero_gradients: frozenset[str],
        evaluated: EpochFile,
    ) -> tuple[list[TensorComparison], NumericalConventions]:
        conventions = _prepare(engine, request, request.job, request.weights, request.pipeline_files)
        workload = request.job.workload
        tolerance, optimizer = timed_tolerance(request.job.model, workload), workload.optimizer
        update = ExpectedUpdate(request.job.model, optimizer, folder / "updates", tolerance, zero_gradients)
        # The last change of the learning rate, or without one the last of the first steps.
        last = [request.steps - 1, *optimizer.changes][-1]
        steps = sorted({0, last})
        tensors: list[TensorComparison] = []
        if request.pipeline_files is not None:
            for step in sorted({*range(request.steps), last}):
                engine.request(calls.write_batch(step, str(folder / "batch.npz")), request.timeout)
                tensors += batch_errors(step, folder / "batch.npz", request.epoch)
        actual = _snapshot(engine, request, folder / "timed", 0)
        for step, next_step in pairwise([*steps, last + 1]):
            weights = actual.weights if step else request.weights
            expected = self._reference_state(request, conventions, weights, step, folder / f"expected{step}")
            errors = list(timed_errors(workload.precision, step, actual, expected, tolerance, zero_gradients))
            update.apply(step, actual, expected)
            loss = engine.request(calls.run_steps(step, 1), request.timeout)
            errors.append(loss_error("loss in training", step, loss, expected.loss, tolerance["loss"]))
            actual = _snapshot(engine, request, folder / "timed", next_step)
            errors += update.errors(step + 1, actual.weights)
            errors += statistics_errors(
                workload.precision, step + 1, actual.weights, expected.weights, tolerance["statistic"]
            )
            if workload.precision == "fp32" and not all(error.passed for error in errors):
                rounding = conventions.rounded_to_float32()
                rounded = self._reference_state(request, rounding, weights, step, folder / f"rounded{step}")
                errors = allow_for_rounding(
                    errors, float32_errors(step, rounded, expected, zero_gradients), update.rounding_errors()
                )
            tensors += errors
        evaluation = request._replace(epoch=evaluated)
        tensors += self._evaluation_errors(engine, evaluation, actual.weights, folder, tolerance["loss"])
        return tensors, conventions

    def _evaluation_errors(
        self, engine: WorkerSession, request: CheckRequest, weights: Path, folder: Path, tolerance: float
    ) -> Iterable[TensorComparison]:
        """Compare the evaluation of the engine's current weights, for chosen labels."""
        logits = folder / "logits.npz"
        batches = min(request.epoch.steps, max(1, _COUNTED_IMAGES // request.epoch.batch_size))
        request = request._replace(epoch=msgspec.structs.replace(request.epoch, steps=batches))
        _prepare(self._reference, request, _reference_job(request, NO_DEVIATIONS), weights)
        self._reference.request(calls.write_logits(request.epoch, str(logits)), request.timeout)
        labelled = write_chosen_labels(request.epoch, logits, folder / "chosen_labels.i64")
        return evaluation_errors(logits, labelled, engine.request(calls.evaluate(labelled), request.timeout), tolerance)

    def _reference_state(
        self, request: CheckRequest, conventions: NumericalConventions, weights: Path, step: int, folder: Path
    ) -> State:
        """Return the reference's loss and gradients at these weights, and the running statistics after the step.

        All engines share the initial weights, so the state there is cached.
        """

        job = _reference_job(request, conventions)

        def compute() -> Losses:
            _prepare(self._reference, request, job, weights)
            state = _snapshot(self._reference, request, folder, step)
            self._reference.request(calls.write_statistics(step, str(state.weights)), request.timeout)
            return {step: _finite_loss(state)}

        if weights == request.weights:
            return self._fetch(request, job, 0, folder, compute)[step]
        folder.mkdir()
        return _loaded(folder, compute())[step]

    def _known_deviations(
        self, request: CheckRequest, conventions: NumericalConventions, folder: Path, zero_gradients: frozenset[str]
    ) -> list[KnownDeviation]:
        """Measure how far each declared convention, applied alone, moves the first step's results."""
        rules = dict(conventions.each_rule())
        if not rules:
            return []
        exact = self._reference_state(request, NO_DEVIATIONS, request.weights, 0, folder / "exact")
        return [
            deviation
            for name, rule in rules.items()
            for deviation in known_deviations(
                rule, self._reference_state(request, rule, request.weights, 0, folder / name), exact, zero_gradients
            )
        ]


class _ReferenceSession(NamedTuple):
    """Wraps the reference's session to distinguish its failures from those of the engine."""

    session: WorkerSession

    def request(self, request: Request[AnswerT], timeout: float) -> AnswerT:
        try:
            return self.session.request(request, timeout)
        except ConfigurationFailed as error:
            raise ReferenceFailed(str(error)) from error


def _with_batch_size(request: CheckRequest, batch_size: int, folder: Path) -> CheckRequest:
    """Return a request to train on batches of this size, which repeat the images of smaller ones."""
    workload = msgspec.structs.replace(request.job.workload, batch_size=batch_size)
    request = request._replace(job=msgspec.structs.replace(request.job, workload=workload))
    if batch_size <= request.epoch.batch_size:
        return request
    rows = repeated_rows(batch_size, request.epoch.batch_size)
    epoch, pipeline_files = repeat_rows(request.epoch, request.pipeline_files, rows, folder / "repeated")
    return request._replace(epoch=epoch, pipeline_files=pipeline_files)


def _reference_job(request: CheckRequest, conventions: NumericalConventions) -> Job:
    return msgspec.structs.replace(request.job, device="cpu", dtype="float64", variants=(), conventions=conventions)


def _prepare(
    session: WorkerSession, request: CheckRequest, job: Job, weights: Path, pipeline_files: PipelineFiles | None = None
) -> NumericalConventions:
    message = calls.prepare(job, str(weights), request.epoch, pipeline=pipeline_files)
    return session.request(message, request.timeout).conventions


def _run_training(
    session: WorkerSession, request: CheckRequest, folder: Path, changes: Sequence[int] | None = None
) -> dict[int, State]:
    """Train without corrections in between; return the states at steps 0, 1 and the last, and after the schedule.

    `changes` are the steps of the schedule, by default those of `_later_changes`.
    """
    states = {}
    for step in range(request.steps + 1):
        if step in (0, 1, request.steps):
            states[step] = _snapshot(session, request, folder, step)
        if step < request.steps:
            session.request(calls.run_steps(step, 1), request.timeout)
    for step in (changes := _later_changes(request) if changes is None else changes):
        session.request(calls.run_steps(step, 1), request.timeout)
    if changes:
        states[changes[-1] + 1] = _snapshot(session, request, folder, changes[-1] + 1)
    return states


def _later_changes(request: CheckRequest) -> list[int]:
    """Return the first two changes of the learning rate after the first steps, and the last one.

    With more steps, rounding errors would grow: those of `resnet32` by a factor of ten a step.
    """
    changes = [step for step in request.job.workload.optimizer.changes if step >= request.steps]
    return sorted({*changes[:2], *changes[-1:]})


def _snapshot(session: WorkerSession, request: CheckRequest, folder: Path, step: int) -> State:
    folder.mkdir(exist_ok=True)
    state = _state(folder, step, math.nan)
    message = calls.take_snapshot(step, str(state.gradients), str(state.weights))
    loss = session.request(message, request.timeout)
    return state._replace(loss=math.nan if loss is None else loss)


def _loaded(folder: Path, losses: Losses) -> dict[int, State]:
    return {step: _state(folder, step, math.nan if loss is None else loss) for step, loss in losses.items()}


def _state(folder: Path, step: int, loss: float) -> State:
    return State(loss, folder / f"{step}.gradients.npz", folder / f"{step}.weights.npz")


def _finite_loss(state: State) -> float | None:
    return state.loss if math.isfinite(state.loss) else None


def training_key(job: Job, steps: int, source_digest: str, *files: Path) -> str:
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
    return cache_key(job, steps, np.__version__, source_digest, *files)


def source_files() -> list[Path]:
    """Return all Python and Julia files of polybench; a list of only the relevant ones would go stale."""
    package = Path(__file__).parents[1]
    julia = package.parent / "julia"  # exists in a checkout; an installed package contains src and ext
    julia_files = (*package.rglob("*.jl"), *julia.glob("src/*.jl"), *julia.glob("ext/*.jl"))
    return sorted([*package.rglob("*.py"), *julia_files])
