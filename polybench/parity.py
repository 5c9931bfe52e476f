"""Did the engine compute what the reference computes? The two-part check.

(A) The algorithm: the engine in float64, running freely, against the reference in float64.
(B) The timed configuration: the engine at its own precision; before each checked step the
    reference takes the engine's current weights, so errors cannot grow from step to step.

Tensors are compared one at a time, from files.
"""

from __future__ import annotations

import hashlib
import importlib.util
import math
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from polybench.core.errors import CellFailed
from polybench.core.results import Deviation, Parity, ParityPart, TensorError
from polybench.core.spec import Optimizer
from polybench.data.epoch import EpochFile
from polybench.engines import ENGINES
from polybench.engines.base import EXACT, Conventions, Job
from polybench.messages import Advance, Answer, Prepare, Prepared, Request, Snapped, TakeSnapshot

ALGORITHM = {"loss": 1e-9, "gradient": 1e-9, "weight": 1e-9}
"""Independent float64 implementations of `lenet` agree to 2e-15; a wrong formula is off by 1e-3 or more."""

_TIMED_FP32 = {"loss": 1e-5, "gradient": 5e-2, "weight": 1e-6}
TIMED: Mapping[str, Mapping[str, float]] = {
    # One rounding flips a ReLU or max-pool branch, so a float32 gradient can be percents off.
    "fp32": _TIMED_FP32,
    # Reduced precision: loss, and 1 - cosine of the whole gradient. The update is still made in float32.
    "tf32": {"loss": 2e-2, "gradient": 1e-2, "weight": 1e-6},
    "bf16": {"loss": 2e-2, "gradient": 2e-1, "weight": 1e-6},
}

_GRADIENT_FLOOR = 1e-6
"""A gradient can be exactly zero: its error is then in relation to this part of the norm of all gradients."""


class Session(Protocol):
    """Something that answers requests: a worker process, or in tests a worker in this process."""

    def ask(self, request: Request, timeout: float) -> Answer:
        """Answer, or raise CellFailed or Unavailable."""
        ...


class State(NamedTuple):
    """One snapshot: the loss, and the files with gradients and weights."""

    loss: float
    gradients: Path
    weights: Path


class Task(NamedTuple):
    """What is checked: `job` as it is timed, on the first `steps` + 1 batches of `epoch`."""

    job: Job
    weights: Path
    epoch: EpochFile
    steps: int
    timeout: float


class Checker:
    """Checks engines against one reference session; float64 reference states are kept by hash."""

    def __init__(self, reference: Session, scratch: Path, cache: Path) -> None:
        self._reference = reference
        self._scratch = scratch
        self._cache = cache

    def check(self, engine: Session, task: Task) -> Parity:
        """Both parts, for an engine session that has loaded its framework.

        Raises:
            CellFailed: the engine could not be brought to answer.
        """
        folder = Path(tempfile.mkdtemp(dir=self._scratch))
        try:
            algorithm = list(self._algorithm(engine, task, folder))
            timed, conventions = self._timed(engine, task, folder)
            return Parity(
                status="pass" if all(tensor.passed for tensor in algorithm + timed) else "fail",
                reason=_worst_failure(algorithm + timed),
                steps=task.steps,
                batch_size=task.epoch.batch_size,
                algorithm=_part(algorithm, ALGORITHM),
                timed=_part(timed, TIMED[task.job.workload.precision]),
                deviations=self._deviations(task, conventions, folder),
                tensors=algorithm + timed,
            )
        finally:
            shutil.rmtree(folder)

    def _algorithm(self, engine: Session, task: Task, folder: Path) -> Iterator[TensorError]:
        job = msgspec.structs.replace(task.job, dtype="float64")
        conventions = _prepare(engine, task, job, task.weights)
        expected = self._free_run(task, conventions)
        for step, got in _run_freely(engine, task, folder).items():
            yield from _compare(step, got, expected[step])

    def _free_run(self, task: Task, conventions: Conventions) -> dict[int, State]:
        """The reference's states, from the cache if the same training was asked for before."""
        job = msgspec.structs.replace(
            task.job, device="cpu", dtype="float64", variants=(), conventions=conventions
        )
        folder = self._cache / _digest(job, task)
        losses = folder / "losses.json"
        if not losses.exists():
            self._cache.mkdir(parents=True, exist_ok=True)
            fresh = Path(tempfile.mkdtemp(dir=self._cache))
            _prepare(self._reference, task, job, task.weights)
            states = _run_freely(self._reference, task, fresh)
            (fresh / "losses.json").write_bytes(
                msgspec.json.encode({step: state.loss for step, state in states.items()})
            )
            try:
                fresh.rename(folder)
            except OSError:  # another study was faster
                shutil.rmtree(fresh)
        by_step = msgspec.json.decode(losses.read_bytes(), type=dict[int, float])
        return {step: _state(folder, step, loss) for step, loss in by_step.items()}

    def _timed(self, engine: Session, task: Task, folder: Path) -> tuple[list[TensorError], Conventions]:
        conventions = _prepare(engine, task, task.job, task.weights)
        tolerance = TIMED[task.job.workload.precision]
        update = _Update(task.job.workload.optimizer, folder / "velocity")
        tensors: list[TensorError] = []
        for step in range(task.steps + 1):
            got = _snapshot(engine, task, folder / "timed", step)
            if step:
                tensors += update.errors(step, got.weights, tolerance["weight"])
            expected = self._at_weights(task, conventions, got.weights, step, folder / "expected")
            tensors.append(
                _error("timed", "loss", step, "loss", got.loss, expected.loss, 0.0, tolerance["loss"])
            )
            tensors += _timed_gradients(task.job.workload.precision, step, got, expected)
            if step < task.steps:
                update.take(got)
                _ask(engine, Advance(step, 1), task)
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

    def _deviations(self, task: Task, conventions: Conventions, folder: Path) -> list[Deviation]:
        """How far the declared conventions are from the exact rule, at the initial weights."""
        if conventions == EXACT:
            return []
        declared = self._at_weights(task, conventions, task.weights, 0, folder / "declared")
        exact = self._at_weights(task, EXACT, task.weights, 0, folder / "exact")
        within = conventions.max_pool_within
        what = f"max-pool gradient goes to the first value within {within:.2g} of the maximum"
        floor = _GRADIENT_FLOOR * _total_norm(exact.gradients)
        return [
            Deviation(what, name, _relative(got, want, floor), conventions.source)
            for name, got, want in _pairs(declared.gradients, exact.gradients)
        ]


class _Update:
    """The optimizer's formula, applied in float64 to the engine's own gradients."""

    def __init__(self, optimizer: Optimizer, folder: Path) -> None:
        self._optimizer = optimizer
        self._folder = folder
        self._before: State | None = None
        folder.mkdir()

    def take(self, state: State) -> None:
        """The engine is about to make its step from this state: v <- mu v + g."""
        self._before = state
        with np.load(state.gradients) as gradients:
            for name in gradients.files:
                file = self._folder / f"{name}.npy"
                velocity = np.load(file) if file.exists() else 0.0
                np.save(file, self._optimizer.momentum * velocity + gradients[name].astype(np.float64))

    def errors(self, step: int, weights: Path, tolerance: float) -> Iterator[TensorError]:
        """The weights that the engine reached against w - learning_rate v."""
        assert self._before is not None
        floor = _GRADIENT_FLOOR * _total_norm(self._before.gradients)
        for name, got, before in _pairs(weights, self._before.weights):
            velocity = np.load(self._folder / f"{name}.npy")
            want = before.astype(np.float64) - self._optimizer.learning_rate * velocity
            yield _error("timed", name, step, "weight", got, want, floor, tolerance)


def _prepare(session: Session, task: Task, job: Job, weights: Path) -> Conventions:
    answer = _ask(session, Prepare(job, str(weights), task.epoch), task)
    assert isinstance(answer, Prepared)
    return answer.conventions


def _ask(session: Session, request: Request, task: Task) -> Answer:
    return session.ask(request, task.timeout)


def _run_freely(session: Session, task: Task, folder: Path) -> dict[int, State]:
    """States at steps 0, 1 and the last, without interference in between."""
    states = {}
    for step in range(task.steps + 1):
        if step in (0, 1, task.steps):
            states[step] = _snapshot(session, task, folder, step)
        if step < task.steps:
            _ask(session, Advance(step, 1), task)
    return states


def _snapshot(session: Session, task: Task, folder: Path, step: int) -> State:
    folder.mkdir(exist_ok=True)
    state = _state(folder, step, math.nan)
    answer = _ask(session, TakeSnapshot(step, str(state.gradients), str(state.weights)), task)
    assert isinstance(answer, Snapped)
    return state._replace(loss=math.nan if answer.loss is None else answer.loss)


def _state(folder: Path, step: int, loss: float) -> State:
    return State(loss, folder / f"{step}.gradients.npz", folder / f"{step}.weights.npz")


def _compare(step: int, got: State, want: State) -> Iterator[TensorError]:
    floor = _GRADIENT_FLOOR * _total_norm(want.gradients)
    yield _error("algorithm", "loss", step, "loss", got.loss, want.loss, 0.0, ALGORITHM["loss"])
    for name, a, b in _pairs(got.gradients, want.gradients):
        yield _error("algorithm", name, step, "gradient", a, b, floor, ALGORITHM["gradient"])
    for name, a, b in _pairs(got.weights, want.weights):
        yield _error("algorithm", name, step, "weight", a, b, floor, ALGORITHM["weight"])


def _timed_gradients(precision: str, step: int, got: State, want: State) -> Iterator[TensorError]:
    tolerance = TIMED[precision]["gradient"]
    if precision == "fp32":
        floor = _GRADIENT_FLOOR * _total_norm(want.gradients)
        for name, a, b in _pairs(got.gradients, want.gradients):
            yield _error("timed", name, step, "gradient", a, b, floor, tolerance)
    else:
        products = [
            (np.vdot(a, b), np.vdot(a, a), np.vdot(b, b)) for _, a, b in _pairs(got.gradients, want.gradients)
        ]
        dot, left, right = (float(sum(column)) for column in zip(*products, strict=True))
        cosine = dot / math.sqrt(left * right) if left * right > 0 else math.nan
        yield TensorError("timed", "whole gradient", step, "gradient", _finite(1.0 - cosine), tolerance)


def _pairs(got: Path, want: Path) -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    with np.load(got) as a, np.load(want) as b:
        for name in b.files:
            if name not in a.files or a[name].shape != b[name].shape:
                shape = a[name].shape if name in a.files else "nothing"
                raise CellFailed(
                    f"snapshot: {name} should have shape {b[name].shape}, the engine gave {shape}"
                )
            yield name, a[name].astype(np.float64), b[name].astype(np.float64)


def _total_norm(gradients: Path) -> float:
    with np.load(gradients) as file:
        return math.sqrt(sum(float(np.vdot(value, value)) for value in (file[name] for name in file.files)))


def _error(
    part: Any, name: str, step: int, kind: Any, got: Any, want: Any, floor: float, tolerance: float
) -> TensorError:
    return TensorError(part, name, step, kind, _finite(_relative(got, want, floor)), tolerance)


def _relative(got: Any, want: Any, floor: float) -> float:
    distance = float(np.linalg.norm(np.ravel(got) - np.ravel(want)))
    return distance / max(float(np.linalg.norm(np.ravel(want))), floor) if distance else 0.0


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None


def _worst_failure(tensors: list[TensorError]) -> str | None:
    """The first step's worst error over its tolerance, in words."""
    failures = [tensor for tensor in tensors if not tensor.passed]
    if not failures:
        return None
    worst = max(
        failures, key=lambda t: math.inf if t.relative_error is None else t.relative_error / t.tolerance
    )
    error = "not finite" if worst.relative_error is None else f"{worst.relative_error:.2g}"
    return (
        f"{worst.part}, step {worst.step}: {worst.kind} error of {worst.name} is {error},"
        f" at most {worst.tolerance:g} allowed ({len(failures)} of {len(tensors)} comparisons fail)"
    )


def _part(tensors: list[TensorError], tolerance: Mapping[str, float]) -> ParityPart:
    def largest(kind: str) -> float | None:
        errors = [tensor.relative_error for tensor in tensors if tensor.kind == kind]
        return None if None in errors else max(error for error in errors if error is not None)

    return ParityPart(largest("loss"), largest("gradient"), largest("weight"), dict(tolerance))


def _digest(job: Job, task: Task) -> str:
    """Names a training of the reference: its job, weights, batches, steps and the reference's own code."""
    digest = hashlib.sha256(msgspec.json.encode((job, task.steps)))
    for path in (
        task.weights,
        Path(task.epoch.images_path),
        Path(task.epoch.labels_path),
        *_reference_sources(),
    ):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:32]


def _reference_sources() -> list[Path]:
    module = ENGINES["reference"].factory.partition(":")[0]
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    source = Path(spec.origin)
    return sorted(source.parent.glob(f"{source.stem}*.py"))
