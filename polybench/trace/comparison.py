"""Two traces side by side: their tensors in one layout, and the errors of each."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, get_args

import numpy as np

from polybench.schema.trace import DifferenceKind, TensorKind
from polybench.trace.batches import Inputs, compare_inputs
from polybench.trace.dtypes import NO_GRADIENT, rounding_unit, significant_bits
from polybench.trace.file import Array, Trace
from polybench.trace.pairing import Pair, pair_statistics, pair_weights, relative_error
from polybench.trace.update_rules import Rules, find_rules

KINDS: tuple[DifferenceKind, ...] = get_args(DifferenceKind)
TENSOR_KINDS: tuple[DifferenceKind, ...] = ("weight", "gradient", "statistic", "update")
"""Kinds of differences that are compared tensor by tensor."""

CEILING = 0.05
"""Largest relative error that may count as equal: rounding that can do more than this tells nothing."""

_NO_GRADIENT_UNITS = 80
"""Norm of a gradient that is rounding, as `NO_GRADIENT`, in units of rounding."""


class Comparison(NamedTuple):
    """Two traces, with their tensors paired.

    Attributes:
        weights, statistics: pairs of tensors.
        inputs: what differs between the batches.
        without_gradient: names in A of weights whose gradients are rounding, such as a bias before batch norm. Adam
            makes full updates of them, so their updates are not compared.
        rules: of the optimizers; None if the traces do not tell.
        unit: of rounding, the largest one of all weights and gradients; gradients may have the significant bits of a
            coarser type than their own.
    """

    a: Trace
    b: Trace
    weights: Sequence[Pair]
    statistics: Sequence[Pair]
    inputs: Inputs
    without_gradient: frozenset[str]
    rules: Rules | None
    unit: float


def pair(a: Trace, b: Trace, names: Mapping[str, str]) -> Comparison:
    """Pair the tensors of two traces; `names` as in `pair_weights`."""
    unit = max(map(_rounding_unit, (a, b)))
    norms = {name: float((a.tensor(0, "gradient", name) ** 2).sum()) for name in a.names(0, "gradient")}
    limit = min(max(NO_GRADIENT, _NO_GRADIENT_UNITS * unit), CEILING) ** 2 * sum(norms.values())
    without_gradient = frozenset(name for name, norm in norms.items() if 0 < norm < limit)
    weights, statistics = pair_weights(a, b, names), pair_statistics(a, b)
    rules = find_rules(a, b)
    return Comparison(a, b, weights, statistics, compare_inputs(a, b), without_gradient, rules, unit)


def _rounding_unit(trace: Trace) -> float:
    """Return the unit of the coarsest arithmetic in a training."""
    kinds: tuple[TensorKind, ...] = ("weight", "gradient")
    types = {trace.dtype(0, kind, name) for kind in kinds for name in trace.names(0, kind)}
    gradients = list(trace.tensors(0, "gradient").values())
    return max([*map(rounding_unit, types), 2.0 ** (1 - significant_bits(gradients)) if gradients else 0.0])


def pairs_of(comparison: Comparison, step: int, kind: DifferenceKind) -> Iterator[tuple[str, Array, Array]]:
    """Iterate over the name in A and both tensors, B's in A's layout, without those that one trace lacks."""
    a, b = comparison.a, comparison.b
    match kind:
        case "weight" | "gradient":
            pairs = comparison.weights
        case "statistic":
            pairs, step = comparison.statistics, step + 1
        case "update":
            yield from movements(comparison, step, step + 1)
            return
        case _:
            return
    tensor_kind = kind  # narrowed to those of a trace
    names_a, names_b = {*a.names(step, tensor_kind)}, {*b.names(step, tensor_kind)}
    for pair in pairs:
        if pair.a in names_a and pair.b in names_b:
            yield pair.a, a.tensor(step, tensor_kind, pair.a), pair.layout.apply(b.tensor(step, tensor_kind, pair.b))


def movements(comparison: Comparison, start: int, end: int) -> Iterator[tuple[str, Array, Array]]:
    """Iterate over the name in A and what the steps from `start` to before `end` added to the weight, in both."""
    before = {name: (a, b) for name, a, b in pairs_of(comparison, start, "weight")}
    for name, a, b in pairs_of(comparison, end, "weight"):
        if name in before:
            yield name, a - before[name][0], b - before[name][1]


class Squares(NamedTuple):
    """Sums of squares of a tensor: of A - B, and of A. `unit` is that of rounding, in the coarser one of both types."""

    difference: float
    scale: float
    unit: float = 0.0

    @property
    def error(self) -> float:
        """The relative error norm(a - b) / norm(a)."""
        return math.sqrt(self.difference / self.scale) if self.scale else 0.0 if not self.difference else math.inf


Compared = Mapping[str, Squares | None]
"""Name in A -> what was compared; None for tensors that are rounding, follow from it, or are not finite in both."""


def squares(comparison: Comparison, step: int, kind: DifferenceKind, *, with_rounding: bool = False) -> Compared:
    """Compare the tensors of a kind by their names in A; `with_rounding` also those that follow from rounding."""
    follows = kind == "update" or (kind == "weight" and step > 0)
    rounding = comparison.without_gradient if follows and not with_rounding else frozenset()
    return {
        name: None if name in rounding else _compare(a, b, _unit(comparison, step, kind, name))
        for name, a, b in pairs_of(comparison, step, kind)
    }


def squares_of_movements(comparison: Comparison, start: int, end: int) -> Compared:
    """Compare what the steps from `start` to before `end` added to the weights, as `squares`."""
    rounding = comparison.without_gradient
    return {
        name: None if name in rounding else _compare(a, b, _unit(comparison, end, "weight", name))
        for name, a, b in movements(comparison, start, end)
    }


def _compare(a: Array, b: Array, unit: float) -> Squares | None:
    if not np.isfinite(a).all() and not np.isfinite(b).all():
        return None
    return Squares(float(((a - b) ** 2).sum()), float((a**2).sum()), unit)


def _unit(comparison: Comparison, step: int, kind: DifferenceKind, name: str) -> float:
    """Return the rounding unit of a tensor: that of the coarser type of A's and B's."""
    stored: TensorKind = (
        "weight" if kind in ("weight", "update") else "statistic" if kind == "statistic" else "gradient"
    )
    pairs = comparison.statistics if kind == "statistic" else comparison.weights
    other = next(pair.b for pair in pairs if pair.a == name)
    at = step + 1 if kind == "statistic" else step
    types = comparison.a.dtype(at, stored, name), comparison.b.dtype(at, stored, other)
    return max(map(rounding_unit, types))


def norm_error(tensors: Iterable[Squares | None]) -> float | None:
    """Return the relative error of all tensors together; None without tensors."""
    if not (compared := [one for one in tensors if one is not None]):
        return None
    return Squares(sum(one.difference for one in compared), sum(one.scale for one in compared)).error


class Errors(NamedTuple):
    """All compared numbers of a step: tensors by kind, and errors of the batch and the loss, None if not compared."""

    tensors: Mapping[DifferenceKind, Compared]
    batch: float | None
    loss: float | None


def compare_step(comparison: Comparison, step: int) -> Errors:
    """Compare all numbers of a step; a loss that is finite in one trace only has an infinite error."""
    losses = [trace.steps[step].loss for trace in (comparison.a, comparison.b)]
    finite = [loss for loss in losses if loss is not None]
    loss = relative_error(*finite) if len(finite) == len(losses) else math.inf if finite else None
    tensors = {kind: squares(comparison, step, kind) for kind in TENSOR_KINDS}
    return Errors(tensors, comparison.inputs.errors.get(step), loss)
