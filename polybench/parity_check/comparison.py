"""Compares snapshots of an engine and the reference, one tensor at a time, from files."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from polybench.data.batch_files import EpochFile, open_epoch
from polybench.engines.job import Job, NumericalConventions
from polybench.errors import ConfigurationFailed
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer, apply_update
from polybench.networks.optimizers import State as OptimizerState
from polybench.protocol.calls import Evaluated
from polybench.schema.options import Workload
from polybench.schema.parity import ComparisonKind, KnownDeviation, PrecisionResult, TensorComparison

FLOAT64_TOLERANCE = {"loss": 1e-9, "gradient": 1e-9, "weight": 1e-9}
"""Independent float64 implementations of `lenet` agree to 2e-15. A wrong formula is off by 1e-3 or more."""

FLOAT64_TOLERANCE_WITH_NORM = {"loss": 1e-7, "gradient": 1e-7, "weight": 1e-7}
"""Normalization amplifies rounding errors: implementations of `resnet32` agree to 6.5e-10 after 3 steps."""

_PROGRAM_TOLERANCE = {False: 1e-7, True: 1e-5}
"""Tolerance of a user's program in float64, without and with normalization. Its constants may be float32 numbers, such
as Keras's learning rate: after 3 steps, a weight of `lenet` is then off by 2e-8, and the loss of `resnet32` by 7e-8."""

_FREE_LOSS_TOLERANCE = {False: 1e-4, True: 2e-2}
"""Tolerance of a loss in float32 after steps without corrections. That of `resnet32` is off by 6.5e-3 after two."""

_TIMED_TOLERANCE: Mapping[str, Mapping[str, float]] = {
    # One rounding can switch a ReLU or max-pool branch, so a float32 gradient can be off by percents: in `resnet32`
    # by at most 9.3e-2 in Flux, and 4.6e-2 in TensorFlow (nine seeds). That hardly changes its size, by at most 1.1e-2
    # in the first step in Flux (three seeds) and 4.4e-3 in TensorFlow, or that of all gradients together, by 5.6e-4.
    # Running statistics are off by 2.3e-7, and by 2e-5 if a framework adds 262,144 float32 values one by one.
    "fp32": {"loss": 1e-5, "gradient": 2e-1, "size": 1e-2, "tensor size": 2.5e-2, "weight": 1e-6, "statistic": 1e-4},
    # In reduced precision, the gradient's error is 1 - cosine of the whole gradient. Updates are in float32. In bf16,
    # size and statistics of `resnet32` in PyTorch are off by 4.7e-2 and 4.8e-3; the tolerances are six times these.
    # The size of one of its tensors is off by 0.23, which is 59 times the unit roundoff of 2^-8. The tolerance is 128
    # times the unit roundoff. In tf32 it is 256 times 2^-11: on an H200, that of `conv1.weight` is off by 154 times it.
    "tf32": {"loss": 2e-2, "gradient": 1e-2, "size": 3e-2, "tensor size": 2**-3, "weight": 1e-6, "statistic": 1e-2},
    "bf16": {"loss": 2e-2, "gradient": 2e-1, "size": 3e-1, "tensor size": 2**-1, "weight": 1e-6, "statistic": 3e-2},
}

_FORWARD_TOLERANCE = {"float64": 1e-9, "fp32": 1e-5, "tf32": 2e-2, "bf16": 5e-2}
"""Tolerance of the logits of a forward pass, whose batch norm has given statistics and does not amplify rounding."""

_BATCH_NORM_LOSS_TOLERANCE = 1e-4
"""Tolerance in fp32 of a loss after batch norm, which depends on float32 sums over the batch. Julia's sums
over the 262,144 pixels of a channel of `small-vgg` are off by 2e-5, and its loss by up to 6e-5."""

_ADAM_UPDATE_TOLERANCE = 1e-5
"""Adam divides by 1 - 0.999^t, which amplifies the rounding error of the power a thousandfold. If an engine
stores the power in float32, as Flux does, an update is off by at most 6.8e-6 (at t = 3; computed for t up
to 3000)."""

_UPDATE_TOLERANCE = 1e-4
"""Tolerance relative to the update itself. A step and a snapshot may sum in different orders: in TensorFlow, sums over
the 131,072 pixels of a batch of `resnet32` differ by 7.4e-6."""

GRADIENT_FLOOR = 1e-6
"""Minimum scale of a gradient's error, as a fraction of the norm of all gradients."""

BENCHMARK_ZERO_FLOOR = 2.5e-4
"""Minimum scale of a zero gradient's error at the benchmark precision, relative to the norm of all gradients.

Float32 leaves 1e-6 of this norm if the bias of a convolution sums 65,536 terms before batch norm. The
tolerance is a fifth of this floor, so 5e-5 of the norm: 50 times those rounding errors. Adam and RMSprop make
full updates of such gradients, so the part at the benchmark precision hardly checks these updates. They
cannot change the loss, and the float64 part checks them."""

_SIZE_FLOOR = {"fp32": 1e-4, "tf32": 5e-2, "bf16": 5e-2}
"""Minimum scale of the error of a tensor's size, relative to the norm of all gradients.

Times the tolerance, it is 42 unit roundoffs in float32 and 6 in tf32 and bf16. Rounding leaves 0.5 in float32 and 1 in
bf16: in `dense.bias` of `imdb-bilstm`, which has 3e-6 and 5e-3 of the norm."""

BATCH_TOLERANCE = 1e-6
"""Largest difference of a pixel in 0..1. It allows a few float32 roundings; one grey level is 4e-3."""

CLEAR_MARGIN = 0.05
"""Smallest difference of the two largest logits, relative to the largest absolute logit, that no precision changes."""

ROUNDING_FACTOR = 4
"""Largest error in float32, relative to that of the reference with plain roundings (`float32_errors`)."""

_MEAN_FLOOR = {"fp32": 1e-2, "tf32": 5e-1, "bf16": 1.0}
"""Minimum scale of a running mean's error, relative to the running standard deviations.

The mean of a convolution without bias is 0 if batch norm precedes it, as in `mobile-cifar`; rounding leaves a unit
roundoff of the standard deviation. Times the tolerance, the floor is 15 unit roundoffs or more."""

_RUNNING_MEAN = ".running_mean"
_WEIGHTS = "weights"
"""Array stored with the optimizer's state: the expected weights."""

_OWN, _EXACT = "own", "exact"
"""Expected weights from the engine's own gradients, and from those of the reference."""

_DIVIDING = ("adam", "adamw", "rmsprop")
"""Optimizers that divide a gradient by its own size."""

_Pair = tuple[str, NDArray[Any], NDArray[Any]]
"""Name of a tensor, its actual values and its expected values."""


def timed_tolerance(model: Model, workload: Workload) -> Mapping[str, float]:
    """Return the tolerances of the timed part: for loss, gradient and weight (of one update), or for the logits."""
    if workload.is_forward_pass:
        return {"logits": _FORWARD_TOLERANCE[workload.precision]}
    tolerance = dict(_TIMED_TOLERANCE[workload.precision])
    if workload.optimizer.name in ("adam", "adamw"):
        tolerance["weight"] = _ADAM_UPDATE_TOLERANCE
    if workload.precision == "fp32" and model.has_statistics:
        tolerance["loss"] = _BATCH_NORM_LOSS_TOLERANCE
    return tolerance


def float64_tolerance(model: Model, workload: Workload) -> Mapping[str, float]:
    """Return the tolerances of the float64 part for loss, gradient and weight, or for the logits of a forward pass."""
    if workload.is_forward_pass:
        return {"logits": _FORWARD_TOLERANCE["float64"]}
    return FLOAT64_TOLERANCE_WITH_NORM if model.has_norm else FLOAT64_TOLERANCE


def program_tolerance(model: Model) -> Mapping[str, float]:
    """Return the tolerances of a user's program in float64."""
    return dict.fromkeys(("loss", "gradient", "weight"), _PROGRAM_TOLERANCE[model.has_norm])


def divides_by_gradient(optimizer: Optimizer) -> bool:
    """Return True for an optimizer that divides a gradient by its own size."""
    return optimizer.name in _DIVIDING


class State(NamedTuple):
    """Snapshot of a training: the loss and the files with gradients and weights."""

    loss: float
    gradients: Path
    weights: Path


class ExpectedUpdate:
    """Applies the optimizer's formula in float64 to the engine's own weights and gradients.

    Errors are relative to the norm of the updated weights, or of the update with a tolerance of its own, whichever
    allows more, because the rounding error of a sum depends on its largest term. Weights with a zero gradient may
    differ by an update that consists of rounding errors only. `folder` is created for the expected weights.
    `update_tolerance` is that of an update relative to itself.
    """

    def __init__(
        self,
        model: Model,
        optimizer: Optimizer,
        folder: Path,
        tolerance: Mapping[str, float],
        zero_gradients: Collection[str],
        *,
        update_tolerance: float = _UPDATE_TOLERANCE,
    ) -> None:
        self._update_tolerance = update_tolerance
        self._names = list(model.weight_shapes())
        self._optimizer = optimizer
        self._folder = folder
        self._tolerance, self._zero_gradients = tolerance, zero_gradients
        self._rates: list[float] = []
        self._scales: dict[str, float] = {}
        folder.mkdir()

    def apply(self, step: int, state: State, exact: State) -> None:
        """Compute the weights that the engine should have after `step`, which starts from `state`.

        `exact` has the reference's gradients at the same weights.
        """
        rate = self._optimizer.learning_rate_at(step)
        self._rates.append(rate)
        norm = total_norm(state.gradients)
        rounding = self._tolerance["gradient"] * BENCHMARK_ZERO_FLOOR * norm
        clip = self._optimizer.clip_factor(norm)
        for name, weights, gradient in _pairs(state.weights, state.gradients, self._names):
            updated = self._continue(_OWN, name, rate, weights, clip * gradient)
            update = float(np.linalg.norm(np.ravel(updated - weights)))
            scale = update * self._update_tolerance / self._tolerance["weight"]
            if name in self._zero_gradients:
                drift = max_drift(self._optimizer, self._rates, rounding, weights.size)
                scale = max(scale, max(drift) / self._tolerance["weight"])
            self._scales[name] = max(scale, GRADIENT_FLOOR * norm)
        if self._optimizer.name in _DIVIDING:
            clip = self._optimizer.clip_factor(total_norm(exact.gradients))
            for name, weights, gradient in _pairs(state.weights, exact.gradients, self._names):
                self._continue(_EXACT, name, rate, weights, clip * gradient)

    def _continue(self, kind: str, name: str, rate: float, weights: NDArray[Any], gradient: NDArray[Any]) -> Any:
        """Apply the formula with the stored state of the optimizer; store and return the weights."""
        file = self._folder / f"{name}.{kind}.npz"
        updated, state = apply_update(self._optimizer, rate, weights, gradient, _arrays(file))
        saved: dict[str, Any] = state | {_WEIGHTS: updated}
        np.savez(file, **saved)
        return updated

    def _weights(self, kind: str, name: str) -> Any:
        return _arrays(self._folder / f"{name}.{kind}.npz")[_WEIGHTS]

    def errors(self, step: int, weights: Path) -> Iterator[TensorComparison]:
        """Compare the engine's weights at the start of `step` with the expected ones."""
        kind: ComparisonKind = "schedule" if step - 1 in self._optimizer.changes else "weight"
        for name, actual, _ in _pairs(weights, weights, self._names):
            expected = self._weights(_OWN, name)
            yield _error("timed", name, step, kind, actual, expected, self._scales[name], self._tolerance["weight"])

    def rounding_errors(self) -> dict[str, float]:
        """Return the relative errors of the weights that the rounding of the engine's gradients causes.

        Only Adam and RMSprop magnify it: they divide a gradient by its own size, and turn the rounding of a value that
        is almost 0 into a full update. A step and a snapshot differ by about as much as either is off.
        """
        return {
            name: _relative_error(self._weights(_EXACT, name), self._weights(_OWN, name), scale)
            for name, scale in self._scales.items()
            if self._optimizer.name in _DIVIDING
        }


def float64_errors(
    steps: Sequence[int],
    actual: State,
    expected: State,
    tolerance: Mapping[str, float],
    optimizer: Optimizer,
    zero_gradients: Collection[str] = (),
    kind: ComparisonKind = "weight",
) -> Iterator[TensorComparison]:
    """Compare weights and running statistics of two float64 states after these steps.

    If `kind` is "weight", loss and gradients are compared as well. Weights in `zero_gradients` may differ by the
    updates that the optimizer computes from rounding errors. Running means may differ as much, because they follow a
    bias before batch norm.
    """
    step = max(steps, default=-1) + 1
    floor = GRADIENT_FLOOR * total_norm(expected.gradients)
    if kind == "weight":
        yield _error("float64", "loss", step, "loss", actual.loss, expected.loss, 0.0, tolerance["loss"])
        for name, a, b in _pairs(actual.gradients, expected.gradients):
            yield _error("float64", name, step, "gradient", a, b, floor, tolerance["gradient"])
    yield from _weight_errors(steps, actual, expected, tolerance, optimizer, zero_gradients, kind)


def _weight_errors(
    steps: Sequence[int],
    actual: State,
    expected: State,
    tolerance: Mapping[str, float],
    optimizer: Optimizer,
    zero_gradients: Collection[str],
    kind: ComparisonKind,
) -> Iterator[TensorComparison]:
    step = max(steps, default=-1) + 1
    floor = GRADIENT_FLOOR * total_norm(expected.gradients)
    rounding = tolerance["gradient"] * floor
    sizes = {name: b.size for name, _, b in _pairs(expected.weights, expected.weights, zero_gradients)}
    rates = [optimizer.learning_rate_at(step) for step in steps]
    drift = {name: sum(max_drift(optimizer, rates, rounding, size)) for name, size in sizes.items()}
    for name, a, b in _pairs(actual.weights, expected.weights):
        mean_drift = max(drift.values(), default=0.0) if name.endswith(_RUNNING_MEAN) else 0.0
        min_scale = max(floor, drift.get(name, mean_drift) / tolerance["weight"])
        yield _error("float64", name, step, kind, a, b, min_scale, tolerance["weight"])


def free_errors(
    part: Literal["float64", "timed"],
    step: int,
    actual: State,
    expected: State,
    job: Job,
    zero_gradients: Collection[str],
    *,
    has_weights: bool,
) -> Iterator[TensorComparison]:
    """Compare a user's program with the reference before `step` of a training without corrections.

    As timed, only losses are compared; rounding errors grow from step to step.
    """
    tolerance = program_tolerance(job.model)
    loss_tolerance = tolerance["loss"]
    if part == "timed":
        first = timed_tolerance(job.model, job.workload)["loss"]
        loss_tolerance = max(first, _FREE_LOSS_TOLERANCE[job.model.has_norm]) if step else first
    yield _error(part, "loss", step, "loss", actual.loss, expected.loss, 0.0, loss_tolerance)
    if part == "float64" and has_weights:
        optimizer = job.workload.optimizer
        yield from _weight_errors(range(step), actual, expected, tolerance, optimizer, zero_gradients, "weight")


def timed_errors(
    precision: str,
    step: int,
    actual: State,
    expected: State,
    tolerance: Mapping[str, float],
    zero_gradients: Collection[str] = (),
) -> Iterator[TensorComparison]:
    """Compare loss and gradients at the same weights.

    In reduced precision, only the direction of the whole gradient is compared, not of each tensor. `zero_gradients` are
    the names of the tensors whose gradient is zero; they have no size.

    A gradient's size is that of its component along the expected one: errors in other directions, such as those of
    rounding, hardly change it. That of each tensor is compared at the initial weights: later, more roundings switch a
    ReLU, and those change the size of a gradient of `resnet32` by 2.1e-2 in Flux.
    """
    yield loss_error("loss", step, actual.loss, expected.loss, tolerance["loss"])
    total = total_norm(expected.gradients)
    products = []
    for name, a, b in _pairs(actual.gradients, expected.gradients):
        dot, left, right = float(np.vdot(a, b)), float(np.vdot(a, a)), float(np.vdot(b, b))
        products.append((dot, left, right))
        if step == 0 and right > 0 and name not in zero_gradients:
            size = abs(dot / right - 1) * min(1.0, math.sqrt(right) / (_SIZE_FLOOR[precision] * total))
            yield TensorComparison("timed", name, step, "size", _finite_or_none(size), tolerance["tensor size"])
        if precision == "fp32":
            floor = _floor(name, zero_gradients) * total
            yield _error("timed", name, step, "gradient", a, b, floor, tolerance["gradient"])
    dot, left, right = (sum(column) for column in zip(*products, strict=True))
    if precision != "fp32":
        # Rounding can make the cosine larger than 1. `min` with this order of arguments preserves NaN.
        cosine = min(dot / math.sqrt(left * right), 1.0) if left * right > 0 else math.nan
        yield _whole_gradient(step, "gradient", 1 - cosine, tolerance)
    yield _whole_gradient(step, "size", abs(dot / right - 1) if right > 0 else math.nan, tolerance)


def float32_errors(
    step: int, rounded: State, expected: State, zero_gradients: Collection[str] = ()
) -> dict[str, float | None]:
    """Return the relative errors of loss, gradients and running statistics of a reference with roundings.

    `rounded` has the rules of `NumericalConventions.rounded_to_float32`.
    """
    total, squares = total_norm(expected.gradients), 0.0
    errors: dict[str, float | None] = {}
    for name, a, b in _pairs(rounded.gradients, expected.gradients):
        errors[name] = _relative_error(a, b, _floor(name, zero_gradients) * total)
        squares += float(((a - b) ** 2).sum())
    errors["whole gradient"] = math.sqrt(squares) / total if total else None
    errors["loss"] = errors["loss in training"] = _relative_error(rounded.loss, expected.loss, 0.0)
    statistics = statistics_errors("fp32", step + 1, rounded.weights, expected.weights, 0.0)
    return errors | {error.name: error.relative_error for error in statistics}


def allow_for_rounding(
    comparisons: Iterable[TensorComparison], errors: Mapping[str, float | None], update_errors: Mapping[str, float]
) -> list[TensorComparison]:
    """Widen the tolerance of what float32 itself moves by more.

    `errors` are those of `float32_errors`, `update_errors` those of `ExpectedUpdate.rounding_errors`.

    In `mobile-cifar`, the gradient of a scale between two batch norms is almost zero, because the second one divides by
    it again. What is left of it is a cancelling sum.
    """

    def allowed(one: TensorComparison) -> float:
        relevant = update_errors if one.kind in ("weight", "schedule") else errors
        return max(one.tolerance, ROUNDING_FACTOR * (relevant.get(one.name) or 0.0))

    return [msgspec.structs.replace(one, tolerance=allowed(one)) for one in comparisons]


def _whole_gradient(step: int, kind: ComparisonKind, error: float, tolerance: Mapping[str, float]) -> TensorComparison:
    return TensorComparison("timed", "whole gradient", step, kind, _finite_or_none(error), tolerance[kind])


def loss_error(name: str, step: int, actual: float | None, expected: float, tolerance: float) -> TensorComparison:
    """Compare the losses of a step at the benchmark precision; None is a loss that is not finite."""
    return _error("timed", name, step, "loss", math.nan if actual is None else actual, expected, 0.0, tolerance)


def statistics_errors(
    precision: str, step: int, weights: Path, expected: Path, tolerance: float
) -> Iterator[TensorComparison]:
    """Compare the running statistics at the start of `step`."""
    statistics = _arrays(expected)
    for name, a, b in _pairs(weights, expected):
        variance = statistics.get(f"{name.removesuffix(_RUNNING_MEAN)}.running_variance")  # None for a variance itself
        floor = 0.0 if variance is None else _MEAN_FLOOR[precision] * float(np.linalg.norm(np.sqrt(variance)))
        yield _error("timed", name, step, "statistic", a, b, floor, tolerance)


def write_varied_weights(weights: Path, path: Path) -> None:
    """Write the weights of a file with `vary_constants`."""
    varied: dict[str, Any] = vary_constants(_arrays(weights))
    np.savez(path, **varied)


def vary_constants(weights: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the weights with other values for the constant tensors: initial biases and running statistics.

    With zeros and ones, an engine that ignores them would compute the same logits.
    """
    random = np.random.default_rng(0)
    return {
        name: value + random.uniform(-0.5, 0.5, value.shape).astype(value.dtype) if np.ptp(value) == 0 else value
        for name, value in weights.items()
    }


def logits_error(part: Any, step: int, logits: Path, expected: NDArray[Any], tolerance: float) -> TensorComparison:
    """Compare the logits of a batch; raises ConfigurationFailed if their shape is wrong."""
    actual = _arrays(logits)["logits"].astype(np.float64)
    if actual.shape != expected.shape:
        raise ConfigurationFailed(f"expected logits of shape {expected.shape}, but the engine returned {actual.shape}")
    return _error(part, "logits", step, "logits", actual, expected, 0.0, tolerance)


def write_chosen_labels(epoch: EpochFile, logits: Path, path: Path) -> EpochFile:
    """Write labels for all images of the epoch, as one batch: of three labels, two should count as correct.

    If rounding decides which logit is the largest, the label is that of the smallest.
    """
    values = _arrays(logits)["logits"]
    right = _is_clear(values) & (np.arange(values[..., 0].size).reshape(values.shape[:-1]) % 3 > 0)
    np.where(right, values.argmax(axis=-1), values.argmin(axis=-1)).astype(np.int64).tofile(path)
    labelled: EpochFile = msgspec.structs.replace(epoch, labels_path=str(path), steps=1, batch_size=len(values))
    return labelled


def evaluation_errors(
    logits: Path, labelled: EpochFile, actual: Evaluated, tolerance: float
) -> Iterator[TensorComparison]:
    """Compare the accuracy, of which less than one prediction may differ, and the loss with those of the logits."""
    values, labels = _arrays(logits)["logits"], np.fromfile(labelled.labels_path, np.int64)
    error = abs(actual.accuracy - float((values.argmax(axis=-1).ravel() == labels).mean()))
    doubtful = float((~_is_clear(values)).sum()) if values.shape[-1] == 2 else 0.0
    yield TensorComparison("timed", "predictions", 0, "correct", _finite_or_none(error), (doubtful + 0.5) / len(labels))
    rows = values.reshape(len(labels), -1)
    with np.errstate(invalid="ignore"):  # logits may be infinite
        losses = np.logaddexp.reduce(rows, axis=1) - rows[np.arange(len(labels)), labels]
    yield loss_error("loss in evaluation", 0, actual.loss, float(losses.mean()), tolerance)


def _is_clear(logits: NDArray[Any]) -> NDArray[Any]:
    """Return for each image or position whether no rounding changes which of its logits is the largest."""
    ordered = np.sort(logits)
    return np.asarray(ordered[..., -1] - ordered[..., -2] > CLEAR_MARGIN * np.abs(logits).max(axis=-1))


def _pairs(actual: Path, expected: Path, names: Iterable[str] | None = None) -> Iterator[_Pair]:
    """Yield the named tensors of both files; by default all tensors of `expected`, in its order.

    The reference writes tensors in the model's order, engines in an order of their own.
    """
    with np.load(actual) as a, np.load(expected) as b:  # each tensor is read when it is compared, and once
        for name in b.files if names is None else names:
            tensor, other = a.get(name), b[name]
            if tensor is None or tensor.shape != other.shape:
                returned = "no such tensor" if tensor is None else f"shape {tensor.shape}"
                raise ConfigurationFailed(
                    f"snapshot: expected {name} of shape {other.shape}, but the engine returned {returned}"
                )
            yield name, tensor.astype(np.float64), other.astype(np.float64)


def _arrays(file: Path) -> dict[str, NDArray[Any]]:
    """Return all arrays of a file; an empty dictionary if the file does not exist."""
    if not file.exists():
        return {}
    with np.load(file) as arrays:
        return dict(arrays)


def _floor(name: str, zero_gradients: Collection[str]) -> float:
    return BENCHMARK_ZERO_FLOOR if name in zero_gradients else GRADIENT_FLOOR


def _error(
    part: Any, name: str, step: int, kind: Any, actual: Any, expected: Any, floor: float, tolerance: float
) -> TensorComparison:
    return TensorComparison(
        part, name, step, kind, _finite_or_none(_relative_error(actual, expected, floor)), tolerance
    )


def _relative_error(actual: Any, expected: Any, floor: float) -> float:
    distance = float(np.linalg.norm(np.ravel(actual) - np.ravel(expected)))
    return distance / max(float(np.linalg.norm(np.ravel(expected))), floor, sys.float_info.min)


def _finite_or_none(error: float) -> float | None:
    return error if math.isfinite(error) else None


_MEANING: dict[ComparisonKind, str] = {
    "loss": "the loss differs from the reference's",
    "gradient": "the gradient differs from the reference's",
    "size": "the gradient is too large or too small",
    "weight": "the weights after the step differ from the optimizer's formula",
    "schedule": "the learning rate does not follow its schedule",
    "statistic": "batch norm's running statistics differ from the reference's",
    "batch": "the input pipeline delivers another batch",
    "kept share": "the engine's own dropout keeps too many or too few values",
    "dropout scale": "the engine's own dropout multiplies the kept values by a wrong factor",
    "correct": "the number of correct predictions is wrong",
    "logits": "the logits differ from the reference's",
}


def largest_failure(tensors: Sequence[TensorComparison]) -> str | None:
    """Describe the failed comparison with the largest ratio of error to tolerance; None if all passed."""
    failures = [tensor for tensor in tensors if not tensor.passed]
    if not failures:
        return None
    largest = max(failures, key=lambda t: math.inf if t.relative_error is None else t.relative_error / t.tolerance)
    error = "not finite" if largest.relative_error is None else f"{largest.relative_error:.2g}"
    return (
        f"{largest.part}, step {largest.step}: {_MEANING[largest.kind]}: {largest.kind} error of {largest.name}"
        f" is {error} (tolerance {largest.tolerance:g}); {len(failures)} of {len(tensors)} comparisons failed"
    )


def known_deviations(
    conventions: NumericalConventions, declared: State, exact: State, zero_gradients: Collection[str]
) -> list[KnownDeviation]:
    """Return how far a single declared convention moves each tensor from the exact rules.

    `declared` and `exact` have the gradients of the first step, and the weights and running statistics after it.
    """
    rule = _describe(conventions)
    if conventions.running_variance == "biased":
        pairs: Iterable[_Pair] = _pairs(declared.weights, exact.weights)
        pairs = (pair for pair in pairs if pair[0].endswith(".running_variance"))
    else:
        pairs = _pairs(declared.gradients, exact.gradients)
    total = total_norm(exact.gradients)
    (source,) = conventions.sources.values()
    return [
        KnownDeviation(rule, name, _relative_error(a, b, _floor(name, zero_gradients) * total), source)
        for name, a, b in pairs
    ]


def _describe(conventions: NumericalConventions) -> str:
    if max_pool_tolerance := conventions.max_pool_within:
        return f"max-pool gradient goes to the first value within {max_pool_tolerance:.2g} of the maximum"
    if sums := conventions.batch_norm_sums:
        return f"batch norm computes mean and variance from {sums} running sums in float32"
    if derivative := conventions.relu_at_zero:
        return f"the derivative of ReLU at 0 is {derivative:g}"
    if conventions.max_pool_ties != "first":
        return "equal maxima of a max-pool share its gradient, or each of them gets it"
    if bits := conventions.operand_bits:
        return f"products round their operands to {bits} significant bits"
    return "batch norm divides the batch's variance by n instead of n - 1 in its running variance"


def largest_errors(tensors: Sequence[TensorComparison], tolerance: Mapping[str, float]) -> PrecisionResult:
    """Return the largest error of each kind; None if an error is not finite, or nothing of this kind was compared."""

    def largest(kind: str) -> float | None:
        errors = [tensor.relative_error for tensor in tensors if tensor.kind == kind]
        return None if None in errors else max((error for error in errors if error is not None), default=None)

    return PrecisionResult(largest("loss"), largest("gradient"), largest("weight"), dict(tolerance), largest("logits"))


def total_norm(gradients: Path) -> float:
    """Return the norm of all gradients in a file."""
    with np.load(gradients) as file:
        return math.sqrt(sum(float(np.vdot(value, value)) for value in (file[name] for name in file.files)))


def find_zero_gradients(gradients: Iterable[Path], tolerance: float) -> frozenset[str]:
    """Return the names of the tensors whose float64 reference gradient is within the tolerance of zero in each file.

    A bias right before batch norm has a zero gradient, because batch norm subtracts the bias again. Engines
    compute the rounding error of a cancelling sum instead, each a different one. Adam and RMSprop divide a
    gradient by its own magnitude and turn such rounding errors into full updates. The parity check therefore
    requires that the gradient is as small as rounding errors, and that the weights differ by no more than an
    optimizer can make of rounding errors.
    """
    zero_names = []
    for path in gradients:
        max_norm = tolerance * GRADIENT_FLOOR * total_norm(path)
        with np.load(path) as file:
            zero_names.append({name for name in file.files if np.linalg.norm(file[name].ravel()) <= max_norm})
    return frozenset(set.intersection(*zero_names)) if zero_names else frozenset()


def max_drift(optimizer: Optimizer, rates: Iterable[float], error: float, size: int) -> list[float]:
    """Return how far a step at each rate can move apart two tensors of `size` values with rounding errors as gradients.

    `error` is the norm of each gradient, spread evenly over all values and equal in all steps. For one step, an even
    spread is the worst case. Errors that grow from step to step and exceed the optimizer's epsilon can exceed the bound
    slightly.
    """
    w, gradient = np.zeros(()), np.array(error / math.sqrt(size))
    state: OptimizerState = {}
    drifts = []
    for rate in rates:
        before, (w, state) = w, apply_update(optimizer, rate, w, gradient, state)
        drifts.append(2 * math.sqrt(size) * abs(float(w - before)))  # in opposite directions
    return drifts


def batch_errors(step: int, actual_path: Path, epoch: EpochFile) -> Iterator[TensorComparison]:
    """Yield the largest pixel difference and the fraction of wrong labels of batch `step`, as the engine trains on it.

    The file has `images` and `labels` in the canonical layout. Raises ConfigurationFailed if a shape is wrong.
    """
    images, labels = open_epoch(epoch)
    expected_arrays = {"images": images[step % epoch.steps], "labels": labels[step % epoch.steps]}
    with np.load(actual_path) as file:
        for name, expected in expected_arrays.items():
            actual = file[name]
            if actual.shape != expected.shape:
                raise ConfigurationFailed(
                    f"batch {step}: expected {name} of shape {expected.shape}, but the input pipeline"
                    f" delivered {actual.shape}"
                )
            difference = np.abs(actual.astype(np.float64) - expected)
            error = float(difference.max() if name == "images" else (difference > 0).mean())
            yield TensorComparison("timed", name, step, "batch", error if np.isfinite(error) else None, BATCH_TOLERANCE)
