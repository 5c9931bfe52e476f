"""Compares snapshots of an engine and the reference, one tensor at a time, from files."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polybench.data.batch_files import EpochFile, open_epoch
from polybench.engines.job import NumericalConventions
from polybench.errors import ConfigurationFailed
from polybench.networks.layers import BatchNorm, walk
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer, apply_update
from polybench.networks.optimizers import State as OptimizerState
from polybench.schema.options import Workload
from polybench.schema.parity import KnownDeviation, PrecisionResult, TensorComparison

FLOAT64_TOLERANCE = {"loss": 1e-9, "gradient": 1e-9, "weight": 1e-9}
"""Independent float64 implementations of `lenet` agree to 2e-15. A wrong formula is off by 1e-3 or more."""

FLOAT64_TOLERANCE_WITH_BATCH_NORM = {"loss": 1e-7, "gradient": 1e-7, "weight": 1e-7}
"""Batch norm amplifies rounding errors: implementations of `resnet32` agree to 6.5e-10 after 3 steps."""

_TIMED_TOLERANCE: Mapping[str, Mapping[str, float]] = {
    # One rounding can switch a ReLU or max-pool branch, so a float32 gradient can be off by percents.
    "fp32": {"loss": 1e-5, "gradient": 5e-2, "weight": 1e-6},
    # In reduced precision, the gradient's error is 1 - cosine of the whole gradient. Updates are in float32.
    "tf32": {"loss": 2e-2, "gradient": 1e-2, "weight": 1e-6},
    "bf16": {"loss": 2e-2, "gradient": 2e-1, "weight": 1e-6},
}

_BATCH_NORM_LOSS_TOLERANCE = 1e-4
"""Tolerance in fp32 of a loss after batch norm, which depends on float32 sums over the batch. Julia's sums
over the 262,144 pixels of a channel of `small-vgg` are off by 2e-5, and its loss by up to 6e-5."""

_ADAM_UPDATE_TOLERANCE = 1e-5
"""Adam divides by 1 - 0.999^t, which amplifies the rounding error of the power a thousandfold. If an engine
stores the power in float32, as Flux does, an update is off by at most 6.8e-6 (at t = 3; computed for t up
to 3000)."""

GRADIENT_FLOOR = 1e-6
"""Minimum scale of a gradient's error, as a fraction of the norm of all gradients."""

BENCHMARK_ZERO_FLOOR = 1e-3
"""Minimum scale of a zero gradient's error at the benchmark precision, relative to the norm of all gradients.

Float32 leaves 1e-6 of this norm if the bias of a convolution sums 65,536 terms before batch norm. The
tolerance is 5e-2 of this floor, so 5e-5 of the norm: 50 times those rounding errors. Adam and RMSprop make
full updates of such gradients, so the part at the benchmark precision hardly checks these updates. They
cannot change the loss, and the float64 part checks them."""

BATCH_TOLERANCE = 1e-6
"""Largest difference of a pixel in 0..1. It allows a few float32 roundings; one grey level is 4e-3."""

_RUNNING_MEAN = ".running_mean"
_UPDATED_WEIGHTS, _SCALE = "weights", "scale"
"""Arrays stored with the optimizer's state: the expected weights, and the minimum scale of their error."""

_Pair = tuple[str, NDArray[Any], NDArray[Any]]
"""Name of a tensor, its actual values and its expected values."""


def timed_tolerance(model: Model, workload: Workload) -> Mapping[str, float]:
    """Return the tolerances of the timed part for loss, gradient and weight (of one update)."""
    tolerance = dict(_TIMED_TOLERANCE[workload.precision])
    if workload.optimizer.name == "adam":
        tolerance["weight"] = _ADAM_UPDATE_TOLERANCE
    if workload.precision == "fp32" and _has_batch_norm(model):
        tolerance["loss"] = _BATCH_NORM_LOSS_TOLERANCE
    return tolerance


def float64_tolerance(model: Model) -> Mapping[str, float]:
    """Return the tolerances of the float64 part for loss, gradient and weight."""
    return FLOAT64_TOLERANCE_WITH_BATCH_NORM if _has_batch_norm(model) else FLOAT64_TOLERANCE


def _has_batch_norm(model: Model) -> bool:
    return any(isinstance(layer, BatchNorm) for layer in walk(model.layers))


class State(NamedTuple):
    """Snapshot of a training: the loss and the files with gradients and weights."""

    loss: float
    gradients: Path
    weights: Path


class ExpectedUpdate:
    """Applies the optimizer's formula in float64 to the engine's own weights and gradients.

    Errors are relative to the norm of the updated weights or of the update, whichever is larger, because
    the rounding error of a sum depends on its largest term. Weights with a zero gradient may differ by an
    update that consists of rounding errors only. `folder` is created for the expected weights.
    """

    def __init__(
        self,
        model: Model,
        optimizer: Optimizer,
        folder: Path,
        tolerance: Mapping[str, float],
        zero_gradients: Collection[str],
    ) -> None:
        self._names = list(model.weight_shapes())
        self._optimizer = optimizer
        self._folder = folder
        self._tolerance, self._zero_gradients = tolerance, zero_gradients
        self._before: State | None = None
        folder.mkdir()

    def apply(self, step: int, state: State) -> None:
        """Compute the weights that the engine should have after `step`, which starts from `state`."""
        self._before = state
        rate = self._optimizer.learning_rate_at(step)
        for name, weights, gradient in _pairs(state.weights, state.gradients, self._names):
            file = self._folder / f"{name}.npz"
            updated_weights, optimizer_state = apply_update(self._optimizer, rate, weights, gradient, _arrays(file))
            scale = float(np.linalg.norm(np.ravel(updated_weights - weights)))
            if name in self._zero_gradients:
                rounding = self._tolerance["gradient"] * BENCHMARK_ZERO_FLOOR * total_norm(state.gradients)
                drift = max_drift(self._optimizer, step + 1, rounding, weights.size)
                scale = max(scale, max(drift) / self._tolerance["weight"])
            saved: dict[str, Any] = optimizer_state | {_UPDATED_WEIGHTS: updated_weights, _SCALE: np.array(scale)}
            np.savez(file, **saved)

    def errors(self, step: int, weights: Path) -> Iterator[TensorComparison]:
        """Compare the engine's weights at the start of `step` with the expected ones."""
        assert self._before is not None
        floor = GRADIENT_FLOOR * total_norm(self._before.gradients)
        for name, actual, _ in _pairs(weights, self._before.gradients, self._names):
            with np.load(self._folder / f"{name}.npz") as file:
                min_scale = max(floor, float(file[_SCALE]))
                yield _error(
                    "timed", name, step, "weight", actual, file[_UPDATED_WEIGHTS], min_scale, self._tolerance["weight"]
                )


def float64_errors(
    step: int,
    actual: State,
    expected: State,
    tolerance: Mapping[str, float],
    optimizer: Optimizer,
    zero_gradients: Collection[str] = (),
) -> Iterator[TensorComparison]:
    """Compare loss, gradients, weights and running statistics of two float64 states.

    Weights in `zero_gradients` may differ by the updates that the optimizer computes from rounding errors.
    Running means may differ as much, because they follow a bias before batch norm.
    """
    floor = GRADIENT_FLOOR * total_norm(expected.gradients)
    yield _error("float64", "loss", step, "loss", actual.loss, expected.loss, 0.0, tolerance["loss"])
    for name, a, b in _pairs(actual.gradients, expected.gradients):
        yield _error("float64", name, step, "gradient", a, b, floor, tolerance["gradient"])
    rounding = tolerance["gradient"] * floor
    sizes = {name: b.size for name, _, b in _pairs(expected.weights, expected.weights, zero_gradients)}
    drift = {name: sum(max_drift(optimizer, step, rounding, size)) for name, size in sizes.items()}
    for name, a, b in _pairs(actual.weights, expected.weights):
        mean_drift = max(drift.values(), default=0.0) if name.endswith(_RUNNING_MEAN) else 0.0
        min_scale = max(floor, drift.get(name, mean_drift) / tolerance["weight"])
        yield _error("float64", name, step, "weight", a, b, min_scale, tolerance["weight"])


def timed_errors(
    precision: str,
    step: int,
    actual: State,
    expected: State,
    tolerance: Mapping[str, float],
    zero_gradients: Collection[str] = (),
) -> Iterator[TensorComparison]:
    """Compare loss and gradients at the same weights.

    In reduced precision, only the direction of the whole gradient is compared. `zero_gradients` are the names
    of the tensors whose gradient is zero.
    """
    yield _error("timed", "loss", step, "loss", actual.loss, expected.loss, 0.0, tolerance["loss"])
    if precision == "fp32":
        total = total_norm(expected.gradients)
        for name, a, b in _pairs(actual.gradients, expected.gradients):
            floor = _floor(name, zero_gradients) * total
            yield _error("timed", name, step, "gradient", a, b, floor, tolerance["gradient"])
    else:
        products = [
            (np.vdot(a, b), np.vdot(a, a), np.vdot(b, b)) for _, a, b in _pairs(actual.gradients, expected.gradients)
        ]
        dot, left, right = (float(sum(column)) for column in zip(*products, strict=True))
        # Rounding can make the cosine larger than 1. `min` with this order of arguments preserves NaN.
        cosine = min(dot / math.sqrt(left * right), 1.0) if left * right > 0 else math.nan
        yield TensorComparison(
            "timed", "whole gradient", step, "gradient", _finite_or_none(1.0 - cosine), tolerance["gradient"]
        )


def _pairs(actual: Path, expected: Path, names: Iterable[str] | None = None) -> Iterator[_Pair]:
    """Yield the named tensors of both files; by default all tensors of `expected`, in its order.

    The reference writes tensors in the model's order, engines in an order of their own.
    """
    with np.load(actual) as a, np.load(expected) as b:
        for name in b.files if names is None else names:
            if name not in a.files or a[name].shape != b[name].shape:
                returned = f"shape {a[name].shape}" if name in a.files else "no such tensor"
                raise ConfigurationFailed(
                    f"snapshot: expected {name} of shape {b[name].shape}, but the engine returned {returned}"
                )
            yield name, a[name].astype(np.float64), b[name].astype(np.float64)


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


def largest_failure(tensors: Sequence[TensorComparison]) -> str | None:
    """Describe the failed comparison with the largest ratio of error to tolerance; None if all passed."""
    failures = [tensor for tensor in tensors if not tensor.passed]
    if not failures:
        return None
    largest = max(failures, key=lambda t: math.inf if t.relative_error is None else t.relative_error / t.tolerance)
    error = "not finite" if largest.relative_error is None else f"{largest.relative_error:.2g}"
    return (
        f"{largest.part}, step {largest.step}: {largest.kind} error of {largest.name} is {error}"
        f" (tolerance {largest.tolerance:g}); {len(failures)} of {len(tensors)} comparisons failed"
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
    return "batch norm divides the batch's variance by n instead of n - 1 in its running variance"


def largest_errors(tensors: Sequence[TensorComparison], tolerance: Mapping[str, float]) -> PrecisionResult:
    """Return the largest error of each kind; None if an error is not finite."""

    def largest(kind: str) -> float | None:
        errors = [tensor.relative_error for tensor in tensors if tensor.kind == kind]
        return None if None in errors else max(error for error in errors if error is not None)

    return PrecisionResult(largest("loss"), largest("gradient"), largest("weight"), dict(tolerance))


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


def max_drift(optimizer: Optimizer, steps: int, error: float, size: int) -> list[float]:
    """Return how far each step can move apart two tensors of `size` values whose gradients are rounding errors.

    `error` is the norm of each gradient, spread evenly over all values and equal in all steps. For one step, an even
    spread is the worst case. Errors that grow from step to step and exceed the optimizer's epsilon can exceed the bound
    slightly.
    """
    w, gradient = np.zeros(()), np.array(error / math.sqrt(size))
    state: OptimizerState = {}
    drifts = []
    for step in range(steps):
        before, (w, state) = w, apply_update(optimizer, optimizer.learning_rate_at(step), w, gradient, state)
        drifts.append(2 * math.sqrt(size) * abs(float(w - before)))  # in opposite directions
    return drifts


def batch_errors(step: int, actual_path: Path, epoch: EpochFile) -> Iterator[TensorComparison]:
    """Yield the largest pixel difference and the fraction of wrong labels of batch `step`, as the engine trains on it.

    The file has `images` and `labels` in the canonical layout. Raises ConfigurationFailed if a shape is wrong.
    """
    images, labels = open_epoch(epoch)
    expected_arrays = {"images": images[step], "labels": labels[step]}
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
