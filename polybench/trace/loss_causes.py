"""Known causes in the recorded loss: the mean of an epoch, and a squared error of all targets and predictions."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from polybench.schema.trace import Cause, FirstDifference
from polybench.trace.comparison import Comparison, pairs_of
from polybench.trace.file import Array, Trace

_SHARE = 0.01
"""Largest share of a difference of losses that remains when a cause explains it."""

_SAME = 1e-5
"""Largest relative error of a loss that rounding explains."""


def running_mean(comparison: Comparison, first: FirstDifference) -> Iterator[Cause]:
    """A recorded loss that is the mean of all batches so far."""
    if (first.step, first.kind) in ((0, "weight"), (0, "batch")):
        return
    traces = comparison.a, comparison.b
    steps = itertools.takewhile(lambda step: all(step in trace.steps for trace in traces), itertools.count())
    pairs = [[trace.steps[step].loss for trace in traces] for step in steps]
    if len(pairs) < 2 or any(None in pair for pair in pairs):
        return
    losses_a, losses_b = np.array(pairs, "float64").T
    for which, other, own, recorded in (("B", "A", losses_a, losses_b), ("A", "B", losses_b, losses_a)):
        is_mean = np.abs(recorded - own) > _SAME * np.abs(own)
        difference = float(np.linalg.norm(recorded - own))
        remaining = float(np.linalg.norm(recorded - _means(own, recorded)))
        if is_mean.any() and remaining <= _SHARE * difference:
            text = f"{which} records the mean loss of its epoch so far, not the loss of the batch"
            if traces["AB".index(which)].header.framework.startswith("keras"):
                text += ': Keras\'s `logs["loss"]` is this mean'
            evidence = f"{which}'s losses are the means of {other}'s losses"
            yield Cause(text, evidence, "loss", remaining / float(np.linalg.norm(recorded)), int(is_mean.argmax()))


def _means(own: Array, recorded: Array) -> Array:
    """Return the mean of each loss and those before it in its epoch, which starts where both losses agree."""
    means: list[float] = []
    epoch: list[float] = []
    for loss, found in zip(own, recorded, strict=True):
        epoch = [loss] if abs(found - loss) <= _SAME * abs(loss) else [*epoch, loss]
        means.append(float(np.mean(epoch)))
    return np.array(means)


class _Head(NamedTuple):
    """A loss L, and its gradients by the last layer p = w h + b of a network with one output.

    Attributes:
        loss: L.
        slope: w dL/dw + b dL/db, which is the sum of p dL/dp over the batch.
        bias: dL/db, which is the sum of dL/dp.
    """

    loss: float
    slope: float
    bias: float

    def divided(self, scale: float) -> _Head:
        return _Head(self.loss / scale, self.slope / scale, self.bias / scale)


def broadcast(comparison: Comparison, first: FirstDifference) -> Iterator[Cause]:
    """A squared error between each target and each prediction: targets (N, 1) against predictions (N,)."""
    if first.kind != "loss":
        return
    step, a, b = first.step, comparison.a, comparison.b
    for name in a.names(step, "batch")[1:]:
        targets = a.tensor(step, "batch", name).astype("float64").ravel()
        if targets.size < 2 or not np.isfinite(targets).all():
            continue
        for weight, head_a, head_b in _heads(comparison, step):
            for which, trace, right, wrong in (("B", b, head_a, head_b), ("A", a, head_b, head_a)):
                if (missed := _missed(right, wrong, targets)) <= _SHARE:
                    yield Cause(
                        f"{which} subtracts each target from each prediction: {_shapes(trace, step, targets.size)}",
                        f"the other loss and the gradient of {weight} predict this loss as a mean over all pairs",
                        "loss",
                        missed * (first.error or 0.0),
                        step,
                    )
                    return


def _heads(comparison: Comparison, step: int) -> Iterator[tuple[str, _Head, _Head]]:
    """Iterate over the name, A and B of the layers with one output; the last layer is among them."""
    losses = comparison.a.steps[step].loss, comparison.b.steps[step].loss
    if losses[0] is None or losses[1] is None:
        return
    weights = {name: (a, b) for name, a, b in pairs_of(comparison, step, "weight")}
    gradients = {name: (a, b) for name, a, b in pairs_of(comparison, step, "gradient")}

    def head(index: int, loss: float, weight: str, bias: str) -> _Head:
        products = (float(np.vdot(weights[name][index], gradients[name][index])) for name in (weight, bias))
        return _Head(loss, sum(products), float(gradients[bias][index].sum()))

    single = [name for name, (a, _) in gradients.items() if a.size == max(a.shape, default=1)]
    for weight, bias in itertools.permutations(single, 2):
        if gradients[bias][0].size == 1 and gradients[weight][0].ndim == 2:
            yield weight, head(0, losses[0], weight, bias), head(1, losses[1], weight, bias)


def _missed(right: _Head, wrong: _Head, targets: Array) -> float:
    """Return the share of the difference of two losses that a broadcast does not explain.

    With means over the batch, the squared error is [pp] - 2 [pt] + [tt], and that of a broadcast has [p] [t] for [pt].
    The right loss and its gradients determine [p] and [pp]. These predict the wrong loss and its gradients.
    """
    n = targets.size
    shares = []
    for scale, wrong_scale in ((1, 1), (0.5, 0.5), (n, n * n), (n / 2, n * n / 2)):  # mean, its half, sum, its half
        one, other = right.divided(scale), wrong.divided(wrong_scale)
        t, tt = float(targets.mean()), float((targets**2).mean())
        p, pp = t + one.bias / 2, tt - one.loss + one.slope
        predicted = _Head(pp - 2 * p * t + tt, 2 * (pp - p * t), 2 * (p - t))
        difference = abs(other.loss - one.loss)
        is_possible = pp >= p**2 and difference > _SAME * (pp + tt)
        missed = max(abs(found - guess) for found, guess in zip(other, predicted, strict=True))
        shares.append(missed / difference if is_possible else np.inf)
    return min(shares)


def _shapes(trace: Trace, step: int, n: int) -> str:
    """Describe the shapes that are broadcast, by those of the recorded targets."""
    shapes = trace.shapes(step, "batch").values()
    column, row = f"({n}, 1)", f"({n},)"
    targets, predictions = (column, row) if (n, 1) in [*shapes][1:] else (row, column)
    return f"targets {targets} and predictions {predictions} broadcast to ({n}, {n})"
