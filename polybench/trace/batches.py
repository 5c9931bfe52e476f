"""Compares the batches of two traces: the same values in another order, layout, scale or coding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from polybench.trace.dtypes import rounding_unit
from polybench.trace.file import Array, Trace
from polybench.trace.pairing import relative_error


class Inputs(NamedTuple):
    """Errors and limits of batches by step, the tensor that differs first and its step, and what differs in words.

    The words are empty if nothing differs.
    """

    errors: dict[int, float]
    limits: dict[int, float]
    step: int = 0
    tensor: str = ""
    cause: str = ""
    remaining_error: float = 0.0


_MAX_AXES = 5
_EXACT = 1e-6
_EXPLAINED = 1e-5
"""Largest relative errors of equal inputs, and of inputs after a correction; both are in float32."""

_CODED = 1e-2
"""Largest difference of the sum of a label's coding from 1; it may be in bfloat16."""

_FEWEST = 4
"""Values to which not every line fits, and labels that do not differ by one number by chance."""

_VARIES = 1e-3
"""Smallest range of values relative to the largest one: any line near their mean fits values that hardly vary."""

_MAX_CHANNELS = 16
"""Indices of an axis that can have factors of their own."""

_ROUNDINGS = 4
"""Largest relative error of equal inputs of a coarser type, in its units of rounding."""


def compare_inputs(a: Trace, b: Trace) -> Inputs:
    """Compare the recorded batches of all common steps."""
    errors: dict[int, float] = {}
    limits: dict[int, float] = {}
    first = Inputs(errors, limits)
    for step in sorted({*a.steps} & {*b.steps}):
        names = a.names(step, "batch"), b.names(step, "batch")
        worst = limits[step] = 0.0
        for name_a, name_b in zip(*names, strict=False):
            one, other = a.tensor(step, "batch", name_a), b.tensor(step, "batch", name_b)
            error = _error_in_one_layout(one, other)
            worst = max(worst, error) if np.isfinite(error) else np.inf
            units = (rounding_unit(a.dtype(step, "batch", name_a)), rounding_unit(b.dtype(step, "batch", name_b)))
            limit = max(_EXACT, _ROUNDINGS * max(units))
            limits[step] = max(limits[step], limit)
            if not error <= limit and not first.tensor:
                cause, remaining = _explain(one, other)
                first = Inputs(errors, limits, step, name_a, cause, remaining)
        if names[0] and names[1]:
            errors[step] = worst
    return first


def without_single_axes(tensor: Array) -> Array:
    """Return a batch without axes of length 1 behind its first axis: labels (N, 1) are labels (N,)."""
    return tensor.reshape(tensor.shape[:1] + tuple(length for length in tensor.shape[1:] if length != 1))


def decode_labels(labels: Array) -> Array:
    """Return the classes of labels that are coded along their last axis, one-hot or smoothed; others as they are."""
    labels = without_single_axes(labels)
    if labels.ndim < 2 or not labels.size or not (np.isfinite(labels).all() and labels.min() >= 0):
        return labels
    is_coded = np.allclose(labels.sum(axis=-1), 1, rtol=0, atol=_CODED)
    return labels.argmax(axis=-1) if is_coded else labels


def with_shape(tensor: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    """Iterate over a tensor with its axes in other orders, as far as it then has the shape.

    A tensor with more axes is flattened to the shape, except for its first axis.
    """
    axes = range(tensor.ndim)
    for order in itertools.permutations(axes) if tensor.ndim <= _MAX_AXES else [axes]:
        moved = tensor.transpose(order)
        is_flat = tensor.ndim > len(shape) and moved.shape[:1] == shape[:1] and moved.size == math.prod(shape)
        if is_flat or moved.shape == shape:
            yield moved.reshape(shape)


def _error_in_one_layout(a: Array, b: Array) -> float:
    """Return the smallest error in any layout: order of axes, axes of length 1 and coding of labels do not count."""
    errors = (relative_error(one, other) for one, other in _in_one_shape(a, b))
    smallest = np.inf
    for error in errors:
        smallest = min(smallest, error)
        if error <= _EXACT:
            break
    return smallest


def _in_one_shape(a: Array, b: Array) -> Iterator[tuple[Array, Array]]:
    """Iterate over A and B in one shape, with the axes of one of them in other orders."""
    if sorted(a.shape) != sorted(b.shape):
        a, b = without_single_axes(a), without_single_axes(b)
        decoded = decode_labels(a), decode_labels(b)
        if a.ndim != b.ndim and decoded[0].shape == decoded[1].shape:
            a, b = decoded
    if a.ndim > b.ndim:
        yield from ((moved, b) for moved in with_shape(a, b.shape))
    else:
        yield from ((a, moved) for moved in with_shape(b, a.shape))


def _explain(a: Array, b: Array) -> tuple[str, float]:
    """Return the cause of a difference in words, and the error that it leaves."""
    cause, remaining = f"the batches have the shapes {a.shape} and {b.shape}", 0.0
    for one, other in _in_one_shape(a, b):
        cause, remaining = _explain_values(one, other)
        if cause not in _UNKNOWN:
            break
    return cause, remaining


_UNKNOWN = ("the batches have other inputs", "the batches have other labels")


def _explain_values(a: Array, b: Array) -> tuple[str, float]:
    if a.dtype.kind in "iub" and b.dtype.kind in "iub":
        return _explain_labels(a.astype("int64"), b.astype("int64")), 0.0
    if not a.ndim or not a.size or not (np.isfinite(a).all() and np.isfinite(b).all()):
        return _UNKNOWN[0], 0.0
    a, b = a.astype("float64"), b.astype("float64")
    order_a, order_b = (np.argsort(one.reshape(len(one), -1).sum(axis=1)) for one in (a, b))
    for find in (_equal, _scaled, _mirrored, _normalized):
        cause, error = find(a, b)
        if error <= _EXPLAINED:
            return cause, error
        cause, error = find(a[order_a], b[order_b])
        if error <= _EXPLAINED:
            return f"{cause}, in another order", error
    return _UNKNOWN[0], 0.0


def _explain_labels(a: Array, b: Array) -> str:
    if a.size >= _FEWEST and np.unique(shift := b - a).size == 1:
        return f"B's labels are A's plus {shift.ravel()[0]}"
    if np.array_equal(np.sort(a.ravel()), np.sort(b.ravel())):
        return "B's batch has the same labels in another order"
    return _UNKNOWN[1]


def _equal(a: Array, b: Array) -> tuple[str, float]:
    return "B's batch has the same inputs", relative_error(a, b)


def _scaled(a: Array, b: Array) -> tuple[str, float]:
    slope, offset = _line(a, b)
    shifted = f", plus {offset:.6g}" if abs(offset) > 1e-6 * np.abs(b).max() else ""
    return f"B's inputs are A's times {slope:.6g}{shifted}", _error(b, slope * a + offset)


def _line(a: Array, b: Array) -> tuple[float, float]:
    """Return slope and offset of b as a linear function of a; NaN if any line fits: few values, or equal ones."""
    tells = a.size >= _FEWEST and np.ptp(a) > 0 and np.ptp(b) > _VARIES * np.abs(b).max()
    slope, offset = np.polyfit(a.ravel(), b.ravel(), 1) if tells else (np.nan, np.nan)
    return float(slope), float(offset)


def _error(a: Array, b: Array) -> float:
    """Return the relative error; infinity if one is not finite."""
    error = relative_error(a, b)
    return error if np.isfinite(error) else np.inf


def _mirrored(a: Array, b: Array) -> tuple[str, float]:
    errors = {axis: relative_error(a, np.flip(b, axis)) for axis in range(1, a.ndim) if a.shape[axis] > 1}
    axis = min(errors, key=lambda one: errors[one], default=0)
    words = "channels in reverse order" if axis and a.shape[axis] == 3 else f"inputs mirrored along axis {axis}"
    return f"B has the {words}", errors.get(axis, np.inf)


def _normalized(a: Array, b: Array) -> tuple[str, float]:
    errors = {axis: _by_channel(a, b, axis) for axis in range(1, a.ndim) if 1 < a.shape[axis] <= _MAX_CHANNELS}
    axis = min(errors, key=lambda one: errors[one], default=0)
    words = f"scaled and shifted for each index of axis {axis} (normalized)"
    return f"B's inputs are A's, {words}", errors.get(axis, np.inf)


def _by_channel(a: Array, b: Array, axis: int) -> float:
    """Return the error of b as a linear function of a for each index of an axis."""
    fitted = np.empty_like(b)
    for index in range(a.shape[axis]):
        at = tuple(index if one == axis else slice(None) for one in range(a.ndim))
        slope, offset = _line(a[at], b[at])
        fitted[at] = slope * a[at] + offset
    return _error(b, fitted)
