"""Compares the batches of two traces: the same values in another order, layout, scale or coding."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import numpy as np

from polybench.trace.file import Array, Trace
from polybench.trace.pairing import relative_error


class Inputs(NamedTuple):
    """Errors of batches by step, the tensor that differs first and its step, and what differs in words.

    The words are empty if nothing differs.
    """

    errors: dict[int, float]
    step: int = 0
    tensor: str = ""
    cause: str = ""
    remaining_error: float = 0.0


_MAX_AXES = 5
_EXACT = 1e-6
_EXPLAINED = 1e-5
"""Largest relative errors of equal inputs, and of inputs after a correction; both are in float32."""


def compare_inputs(a: Trace, b: Trace) -> Inputs:
    """Compare the recorded batches of all common steps."""
    errors: dict[int, float] = {}
    first = Inputs(errors)
    for step in sorted({*a.steps} & {*b.steps}):
        names = a.names(step, "batch"), b.names(step, "batch")
        worst = 0.0
        for name_a, name_b in zip(*names, strict=False):
            one, other = a.tensor(step, "batch", name_a), b.tensor(step, "batch", name_b)
            error, one, moved = _in_one_layout(one, other)
            worst = max(worst, error) if np.isfinite(error) else np.inf
            if not error <= _EXACT and not first.tensor:
                cause, remaining = _explain(one, moved)
                first = Inputs(errors, step, name_a, cause, remaining)
        if names[0] and names[1]:
            errors[step] = worst
    return first


def _in_one_layout(a: Array, b: Array) -> tuple[float, Array, Array]:
    """Return the error, A and B, labels as integers and B with the axes of A: layout and coding do not count."""
    if a.ndim != b.ndim:
        a, b = (one.argmax(axis=-1) if one.dtype.kind == "f" and one.ndim > 1 and one.size else one for one in (a, b))
    best = (np.inf, b)
    for axes in itertools.permutations(range(b.ndim)) if a.ndim == b.ndim <= _MAX_AXES else ():
        moved = b.transpose(axes)
        if moved.shape == a.shape:
            error = relative_error(a, moved)
            best = min(best, (error, moved), key=lambda one: one[0])
            if error <= _EXACT:
                break
    return best[0], a, best[1]


def _explain(a: Array, b: Array) -> tuple[str, float]:
    """Return the cause of a difference in words, and the error that it leaves."""
    if a.shape != b.shape:
        return f"the batches have the shapes {a.shape} and {b.shape}", 0.0
    if not a.ndim or not a.size or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return "the batches have other inputs", 0.0
    if a.dtype.kind in "iub" and b.dtype.kind in "iub":
        return _explain_labels(a.astype("int64"), b.astype("int64")), 0.0
    a, b = a.astype("float64"), b.astype("float64")
    order_a, order_b = (np.argsort(one.reshape(len(one), -1).sum(axis=1)) for one in (a, b))
    for find in (_equal, _scaled, _mirrored, _normalized):
        cause, error = find(a, b)
        if error <= _EXPLAINED:
            return cause, error
        cause, error = find(a[order_a], b[order_b])
        if error <= _EXPLAINED:
            return f"{cause}, in another order", error
    return "the batches have other inputs", 0.0


def _explain_labels(a: Array, b: Array) -> str:
    if np.unique(shift := b - a).size == 1:
        return f"B's labels are A's plus {shift.ravel()[0]}"
    if np.array_equal(np.sort(a.ravel()), np.sort(b.ravel())):
        return "B's batch has the same labels in another order"
    return "the batches have other labels"


def _equal(a: Array, b: Array) -> tuple[str, float]:
    return "B's batch has the same inputs", relative_error(a, b)


def _scaled(a: Array, b: Array) -> tuple[str, float]:
    slope, offset = np.polyfit(a.ravel(), b.ravel(), 1) if np.ptp(a) else (0.0, 0.0)
    shifted = f", plus {offset:.6g}" if abs(offset) > 1e-6 * np.abs(b).max() else ""
    return f"B's inputs are A's times {slope:.6g}{shifted}", relative_error(b, slope * a + offset)


def _mirrored(a: Array, b: Array) -> tuple[str, float]:
    errors = {axis: relative_error(a, np.flip(b, axis)) for axis in range(1, a.ndim)}
    axis = min(errors, key=lambda one: errors[one], default=0)
    words = "channels in reverse order" if axis and a.shape[axis] == 3 else f"inputs mirrored along axis {axis}"
    return f"B has the {words}", errors.get(axis, np.inf)


def _normalized(a: Array, b: Array) -> tuple[str, float]:
    errors = {axis: _by_channel(a, b, axis) for axis in range(1, a.ndim)}
    axis = min(errors, key=lambda one: errors[one], default=0)
    words = f"scaled and shifted for each index of axis {axis} (normalized)"
    return f"B's inputs are A's, {words}", errors.get(axis, np.inf)


def _by_channel(a: Array, b: Array, axis: int) -> float:
    """Return the error of b as a linear function of a for each index of an axis of at most 16."""
    if a.shape[axis] > 16:
        return np.inf
    fitted = np.empty_like(b)
    for index in range(a.shape[axis]):
        at = tuple(index if one == axis else slice(None) for one in range(a.ndim))
        if not np.ptp(a[at]):
            return np.inf
        slope, offset = np.polyfit(a[at].ravel(), b[at].ravel(), 1)
        fitted[at] = slope * a[at] + offset
    return relative_error(b, fitted)
