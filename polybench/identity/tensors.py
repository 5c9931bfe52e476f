"""How far one snapshot's tensors are from another's: compared one at a time, from files."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polybench.core.document.identity import Deviation, ParityPart, TensorError
from polybench.core.errors import CellFailed
from polybench.core.job import Conventions
from polybench.core.layers import BatchNorm, walk
from polybench.core.model import Model
from polybench.core.optimizer_formulas import updated
from polybench.core.optimizers import Optimizer
from polybench.core.spec import Workload
from polybench.identity.vanishing import CANCELLED, GRADIENT_FLOOR, strides, total_norm

ALGORITHM = {"loss": 1e-9, "gradient": 1e-9, "weight": 1e-9}
"""Independent float64 implementations of `lenet` agree to 2e-15; a wrong formula is off by 1e-3 or more."""

ALGORITHM_WITH_BATCH_NORM = {"loss": 1e-7, "gradient": 1e-7, "weight": 1e-7}
"""Batch norm amplifies rounding: those of `resnet32` agree to 6.5e-10 after 3 steps."""

_TIMED: Mapping[str, Mapping[str, float]] = {
    # One rounding flips a ReLU or max-pool branch, so a float32 gradient can be percents off.
    "fp32": {"loss": 1e-5, "gradient": 5e-2, "weight": 1e-6},
    # Reduced precision: loss, and 1 - cosine of the whole gradient. The update is still made in float32.
    "tf32": {"loss": 2e-2, "gradient": 1e-2, "weight": 1e-6},
    "bf16": {"loss": 2e-2, "gradient": 2e-1, "weight": 1e-6},
}

_BATCH_NORM_LOSS = 1e-4
"""In fp32. A loss behind batch norm depends on float32 sums over the batch: Julia's over the 262,144 pixels
of a channel of `smallvgg` are 2e-5 off, and its loss up to 6e-5."""

_ADAM_UPDATE = 1e-5
"""Adam divides by 1 - 0.999^t, in which the rounding of the power counts a thousandfold. Where it is kept in
float32, as in Flux, a step is at most 6.8e-6 too long or short (t = 3; computed for t up to 3000)."""

_RUNNING_MEAN = ".running_mean"
_REACHED, _SCALE = "weights", "scale"
"""Beside an optimizer's state: the weights that its step gives, and the least that an error is a part of."""


def timed_tolerance(model: Model, workload: Workload) -> Mapping[str, float]:
    """What the timed configuration may be off, for loss, gradient and weight (the update alone)."""
    tolerance = dict(_TIMED[workload.precision])
    if workload.optimizer.name == "adam":
        tolerance["weight"] = _ADAM_UPDATE
    if workload.precision == "fp32" and _has_batch_norm(model):
        tolerance["loss"] = _BATCH_NORM_LOSS
    return tolerance


def algorithm_tolerance(model: Model) -> Mapping[str, float]:
    """How far an engine may be from the reference in float64."""
    return ALGORITHM_WITH_BATCH_NORM if _has_batch_norm(model) else ALGORITHM


def _has_batch_norm(model: Model) -> bool:
    return any(isinstance(layer, BatchNorm) for layer in walk(model.layers))


_Pair = tuple[str, NDArray[Any], NDArray[Any]]
"""A tensor's name, what came out, and what should have."""


class State(NamedTuple):
    """One snapshot: the loss, and the files with gradients and weights."""

    loss: float
    gradients: Path
    weights: Path


class ExpectedUpdate:
    """The optimizer's formula, applied in float64 to the engine's own weights and gradients.

    Errors are in relation to the weights that are reached or to the step to them, whichever is larger: a sum
    is no more exact than what is added. Weights whose gradient vanishes may be off by a step of rounding.

    Args:
        model: whose weights.
        optimizer: its formula.
        folder: made here, for what the formula gives.
        tolerance: `timed_tolerance`.
        zero: the tensors whose gradient vanishes.
    """

    def __init__(
        self,
        model: Model,
        optimizer: Optimizer,
        folder: Path,
        tolerance: Mapping[str, float],
        zero: Collection[str],
    ) -> None:
        self._names = list(model.weight_shapes())
        self._optimizer = optimizer
        self._folder = folder
        self._tolerance, self._zero = tolerance, zero
        self._before: State | None = None
        folder.mkdir()

    def take(self, step: int, state: State) -> None:
        """The engine is about to make this step from this state."""
        self._before = state
        rate = self._optimizer.rate_at(step)
        for name, weights, gradient in _pairs(state.weights, state.gradients, self._names):
            file = self._folder / f"{name}.npz"
            reached, kept = updated(self._optimizer, rate, weights, gradient, _arrays(file))
            scale = float(np.linalg.norm(np.ravel(reached - weights)))
            if name in self._zero:
                rounding = self._tolerance["gradient"] * CANCELLED * total_norm(state.gradients)
                noise = strides(self._optimizer, step + 1, rounding, weights.size)
                scale = max(scale, max(noise) / self._tolerance["weight"])
            saved: dict[str, Any] = kept | {_REACHED: reached, _SCALE: np.array(scale)}
            np.savez(file, **saved)

    def errors(self, step: int, weights: Path) -> Iterator[TensorError]:
        """The weights that the engine reached, from which it will make `step`, against the formula's."""
        assert self._before is not None
        floor = GRADIENT_FLOOR * total_norm(self._before.gradients)
        for name, got, _ in _pairs(weights, self._before.gradients, self._names):
            with np.load(self._folder / f"{name}.npz") as file:
                least = max(floor, float(file[_SCALE]))
                yield _error(
                    "timed", name, step, "weight", got, file[_REACHED], least, self._tolerance["weight"]
                )


def algorithm_errors(
    step: int,
    got: State,
    want: State,
    tolerance: Mapping[str, float],
    optimizer: Optimizer,
    zero: Collection[str] = (),
) -> Iterator[TensorError]:
    """Loss, every gradient, every weight and running statistic of two states, in float64.

    Weights whose gradient vanishes, those in `zero`, may be as far apart as the optimizer leads rounding; so
    may running means, which follow a bias before batch norm.
    """
    floor = GRADIENT_FLOOR * total_norm(want.gradients)
    yield _error("algorithm", "loss", step, "loss", got.loss, want.loss, 0.0, tolerance["loss"])
    for name, a, b in _pairs(got.gradients, want.gradients):
        yield _error("algorithm", name, step, "gradient", a, b, floor, tolerance["gradient"])
    rounding = tolerance["gradient"] * floor
    sizes = {name: b.size for name, _, b in _pairs(want.weights, want.weights, zero)}
    led = {name: sum(strides(optimizer, step, rounding, size)) for name, size in sizes.items()}
    for name, a, b in _pairs(got.weights, want.weights):
        follows = max(led.values(), default=0.0) if name.endswith(_RUNNING_MEAN) else 0.0
        least = max(floor, led.get(name, follows) / tolerance["weight"])
        yield _error("algorithm", name, step, "weight", a, b, least, tolerance["weight"])


def timed_errors(
    precision: str,
    step: int,
    got: State,
    want: State,
    tolerance: Mapping[str, float],
    zero: Collection[str] = (),
) -> Iterator[TensorError]:
    """Loss and gradients at the same weights; in reduced precision, the whole gradient's direction.

    `zero` are the tensors whose gradient vanishes.
    """
    yield _error("timed", "loss", step, "loss", got.loss, want.loss, 0.0, tolerance["loss"])
    if precision == "fp32":
        total = total_norm(want.gradients)
        for name, a, b in _pairs(got.gradients, want.gradients):
            floor = _floor(name, zero) * total
            yield _error("timed", name, step, "gradient", a, b, floor, tolerance["gradient"])
    else:
        products = [
            (np.vdot(a, b), np.vdot(a, a), np.vdot(b, b)) for _, a, b in _pairs(got.gradients, want.gradients)
        ]
        dot, left, right = (float(sum(column)) for column in zip(*products, strict=True))
        # Rounding can lead it above 1; `min` keeps what is not a number.
        cosine = min(dot / math.sqrt(left * right), 1.0) if left * right > 0 else math.nan
        yield TensorError(
            "timed", "whole gradient", step, "gradient", _finite(1.0 - cosine), tolerance["gradient"]
        )


def _pairs(got: Path, want: Path, names: Iterable[str] | None = None) -> Iterator[_Pair]:
    """These tensors of two files, in this order; else all that should have come out, in the order of `want`.

    The reference writes them in the model's order, an engine in its own.
    """
    with np.load(got) as a, np.load(want) as b:
        for name in b.files if names is None else names:
            if name not in a.files or a[name].shape != b[name].shape:
                shape = a[name].shape if name in a.files else "nothing"
                raise CellFailed(
                    f"snapshot: {name} should have shape {b[name].shape}, the engine gave {shape}"
                )
            yield name, a[name].astype(np.float64), b[name].astype(np.float64)


def _arrays(file: Path) -> dict[str, NDArray[Any]]:
    """All arrays of a file; none where there is no file."""
    if not file.exists():
        return {}
    with np.load(file) as arrays:
        return dict(arrays)


def _floor(name: str, zero: Collection[str]) -> float:
    return CANCELLED if name in zero else GRADIENT_FLOOR


def _error(
    part: Any, name: str, step: int, kind: Any, got: Any, want: Any, floor: float, tolerance: float
) -> TensorError:
    return TensorError(part, name, step, kind, _finite(_relative(got, want, floor)), tolerance)


def _relative(got: Any, want: Any, floor: float) -> float:
    distance = float(np.linalg.norm(np.ravel(got) - np.ravel(want)))
    return distance / max(float(np.linalg.norm(np.ravel(want))), floor, sys.float_info.min)


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None


def worst_failure(tensors: Sequence[TensorError]) -> str | None:
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


def deviations(
    conventions: Conventions, declared: State, exact: State, zero: Collection[str]
) -> list[Deviation]:
    """How far each tensor is led from the exact rules by the single rule that `conventions` declares.

    Args:
        conventions: one of `Conventions.alone`.
        declared: gradients of the first step, and the weights and running statistics after it.
        exact: the same under the exact rules.
        zero: the tensors whose gradient vanishes.
    """
    what = _in_words(conventions)
    if conventions.running_variance == "biased":
        pairs: Iterable[_Pair] = _pairs(declared.weights, exact.weights)
        pairs = (pair for pair in pairs if pair[0].endswith(".running_variance"))
    else:
        pairs = _pairs(declared.gradients, exact.gradients)
    total = total_norm(exact.gradients)
    (source,) = conventions.sources.values()
    return [
        Deviation(what, name, _relative(got, want, _floor(name, zero) * total), source)
        for name, got, want in pairs
    ]


def _in_words(conventions: Conventions) -> str:
    if within := conventions.max_pool_within:
        return f"max-pool gradient goes to the first value within {within:.2g} of the maximum"
    if sums := conventions.batch_norm_sums:
        return f"batch norm's mean and variance come from {sums} running sums in float32"
    if at_zero := conventions.relu_at_zero:
        return f"ReLU's derivative at 0 is {at_zero:g}"
    return "batch norm's running variance takes the batch's variance divided by n, not by n - 1"


def summarize(tensors: Sequence[TensorError], tolerance: Mapping[str, float]) -> ParityPart:
    """The worst error of each kind, null if one is not finite."""

    def largest(kind: str) -> float | None:
        errors = [tensor.relative_error for tensor in tensors if tensor.kind == kind]
        return None if None in errors else max(error for error in errors if error is not None)

    return ParityPart(largest("loss"), largest("gradient"), largest("weight"), dict(tolerance))
