"""Two traces side by side: their tensors in one layout, errors, and the errors that rounding explains."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from polybench.schema.trace import DifferenceKind
from polybench.trace.batches import Inputs, compare_inputs
from polybench.trace.file import Array, Trace
from polybench.trace.pairing import Layout, Pair, pair_weights
from polybench.trace.update_rules import NO_GRADIENT, Rules, find_rules

TOLERANCE: dict[DifferenceKind, float] = {
    # In units of rounding (1.2e-7 in float32). ReLU and max-pool can switch a branch, so gradients need the most.
    "weight": 80,
    "batch": 8,
    "loss": 80,
    "gradient": 800,
    "statistic": 800,
    "update": 8000,
}
_WITH_NORM = 50
"""Factor of the tolerances behind batch norm and Adam, which amplify rounding."""


class Comparison(NamedTuple):
    """Two traces, with their tensors paired.

    Attributes:
        weights, statistics: pairs of tensors.
        inputs: what differs between the batches.
        without_gradient: names in A of weights whose gradients are rounding, such as a bias before batch norm. Adam
            makes full updates of them, so their updates are not compared.
        rules: of the optimizers; None if the traces do not tell.
    """

    a: Trace
    b: Trace
    weights: Sequence[Pair]
    statistics: Sequence[Pair]
    inputs: Inputs
    without_gradient: frozenset[str]
    rules: Rules | None


def pair(a: Trace, b: Trace, names: Mapping[str, str]) -> Comparison:
    """Pair the tensors of two traces; `names` as in `pair_weights`."""
    norms = {name: float((a.tensor(0, "gradient", name) ** 2).sum()) for name in a.names(0, "gradient")}
    limit = NO_GRADIENT**2 * sum(norms.values())
    without_gradient = frozenset(name for name, norm in norms.items() if 0 < norm < limit)
    weights, statistics = pair_weights(a, b, names), _pair_statistics(a, b)
    return Comparison(a, b, weights, statistics, compare_inputs(a, b), without_gradient, find_rules(a, b))


def _pair_statistics(a: Trace, b: Trace) -> list[Pair]:
    """Pair running statistics by their order: means with means, variances with variances."""
    ordered = []
    for trace in (a, b):
        names = trace.names(0, "statistic")
        variances = [name for name in names if "var" in name.lower() or name.endswith("σ²")]
        ordered.append([[name for name in names if name not in variances], variances])
    pairs = []
    shapes_a, shapes_b = a.shapes(0, "statistic"), b.shapes(0, "statistic")
    for group_a, group_b in zip(*ordered, strict=True):
        if [shapes_a[name] for name in group_a] != [shapes_b[name] for name in group_b]:
            return []
        for one, other in zip(group_a, group_b, strict=True):
            pairs.append(Pair(one, other, Layout(tuple(range(len(shapes_a[one]))))))
    return pairs


def pairs_of(comparison: Comparison, step: int, kind: DifferenceKind) -> Iterator[tuple[str, Array, Array]]:
    """Iterate over the name in A and both tensors, B's in A's layout, without those that one trace lacks."""
    a, b = comparison.a, comparison.b
    match kind:
        case "weight" | "gradient":
            pairs = comparison.weights
        case "statistic":
            pairs, step = comparison.statistics, step + 1
        case "update":
            for name, before_a, before_b in pairs_of(comparison, step, "weight"):
                after = next(one for one in comparison.weights if one.a == name)
                after_b = after.layout.apply(b.tensor(step + 1, "weight", after.b))
                yield name, a.tensor(step + 1, "weight", name) - before_a, after_b - before_b
            return
        case _:
            return
    tensor_kind = kind  # narrowed to those of a trace
    names_a, names_b = {*a.names(step, tensor_kind)}, {*b.names(step, tensor_kind)}
    for pair in pairs:
        if pair.a in names_a and pair.b in names_b:
            yield pair.a, a.tensor(step, tensor_kind, pair.a), pair.layout.apply(b.tensor(step, tensor_kind, pair.b))


class Squares(NamedTuple):
    """Sums of squares of a tensor: of A - B, and of A."""

    difference: float
    scale: float

    @property
    def error(self) -> float:
        """The relative error norm(a - b) / norm(a)."""
        return math.sqrt(self.difference / self.scale) if self.scale else 0.0 if not self.difference else math.inf


def squares(comparison: Comparison, step: int, kind: DifferenceKind) -> dict[str, Squares | None]:
    """Compare the tensors of a kind by their names in A; None for those that are rounding, or follow from it."""
    rounding = comparison.without_gradient if kind == "update" or (kind == "weight" and step > 0) else frozenset()
    return {
        name: None if name in rounding else Squares(float(((a - b) ** 2).sum()), float((a**2).sum()))
        for name, a, b in pairs_of(comparison, step, kind)
    }


def norm_error(tensors: Mapping[str, Squares | None]) -> float | None:
    """Return the relative error of all tensors together; None without tensors."""
    if not tensors:
        return None
    compared = [one for one in tensors.values() if one is not None]
    return Squares(sum(one.difference for one in compared), sum(one.scale for one in compared)).error


def tolerance(comparison: Comparison, step: int, kind: DifferenceKind) -> float:
    """Return the largest error that rounding explains. It grows with the steps."""
    traces = comparison.a, comparison.b
    rounding = max(trace.epsilon() for trace in traces)
    adam = any(
        "adam" in str(trace.header.optimizer_name or trace.header.optimizer.get("name")).lower() for trace in traces
    )
    if kind in ("batch", "update"):
        return TOLERANCE[kind] * rounding
    amplified = bool(comparison.statistics) or (adam and step > 0)
    return TOLERANCE[kind] * rounding * (1 + 3 * step) * (_WITH_NORM if amplified else 1)
