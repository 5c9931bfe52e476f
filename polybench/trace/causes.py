"""Known causes of a difference, each tried on the recorded numbers. ADD A CAUSE: a function, and its row in `_CAUSES`.

Every cause is either explained to rounding or excluded: nothing is guessed from names or settings alone, except for
dropout, which is random.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

import numpy as np
from msgspec.structs import replace

from polybench.networks.model import Model
from polybench.schema.trace import Cause, DifferenceKind, FirstDifference
from polybench.trace import forward
from polybench.trace import update_rules as rules
from polybench.trace.comparison import Comparison, norm_error, pairs_of
from polybench.trace.file import Array, Trace

_CONSTANT = 1e-3
"""Largest relative spread of a factor that counts as one number."""


def find_causes(
    comparison: Comparison, first: FirstDifference | None, model: Model | None
) -> tuple[list[Cause], list[str]]:
    """Return the causes that explain, in the order of a training step, and the names of those that do not.

    Causes that explain to rounding are found without a first difference too: their effect can be smaller than
    what rounding may do elsewhere.
    """
    causes: list[Cause] = []
    excluded: list[str] = []
    for name, find in _CAUSES.items():
        if found := list(find(comparison, first or _NONE)):
            causes += found
        else:
            excluded.append(name)
    if model is None:
        return causes, [*excluded, "(not tried without --model: " + ", ".join(forward.FORWARD_CAUSES) + ")"]
    found = list(_forward(comparison, model))
    if not found:
        excluded += forward.FORWARD_CAUSES
    summed = any("mean" in cause.cause for cause in causes)
    causes += [one for one in found if not (summed and "mean" in one.cause)]
    return sorted(causes, key=lambda cause: get_args(DifferenceKind).index(cause.explains)), excluded


_NONE = FirstDifference(0, "update", "", None)


def _weights(comparison: Comparison, first: FirstDifference) -> Iterator[Cause]:
    """Initial weights that are not the same."""
    if (first.step, first.kind) != (0, "weight"):
        return
    pairs = {name: (a, b) for name, a, b in pairs_of(comparison, 0, "weight")}
    different = [name for name, (a, b) in pairs.items() if np.linalg.norm(a - b) > 1e-5 * np.linalg.norm(a)]
    words = "all weights" if len(different) == len(pairs) else ", ".join(different[:5])
    yield Cause(
        f"B starts from other initial weights: {words}",
        f"{len(different)} of {len(pairs)} tensors differ, in every order of their axes",
        "weight",
        norm_error(comparison, 0, "weight") or 0.0,
    )


def _batch(comparison: Comparison, _: FirstDifference) -> Iterator[Cause]:
    """Inputs or labels that are not the same."""
    inputs = comparison.inputs
    if inputs.cause:
        yield Cause(inputs.cause, f"compared value by value in {inputs.tensor}", "batch", inputs.remaining_error)


def _gradient_factor(comparison: Comparison, first: FirstDifference) -> Iterator[Cause]:
    """Gradients that are a multiple: a sum for a mean, a clipped norm, a loss scale."""
    if first.kind not in ("loss", "gradient"):
        return
    a, b = _joined(comparison, first.step)
    square = float(np.vdot(a, a))
    factor = float(np.vdot(a, b)) / square if square else 0.0
    remaining = float(np.linalg.norm(b - factor * a) / np.linalg.norm(b)) if b.any() else np.inf
    if not remaining <= _CONSTANT or abs(factor - 1) <= _CONSTANT:
        return
    losses = comparison.a.steps[first.step].loss, comparison.b.steps[first.step].loss
    loss_factor = losses[1] / losses[0] if losses[0] and losses[1] else np.nan
    labels = [one.size for _, one, _ in _labels(comparison, first.step)]
    evidence = f"all gradients are multiplied by {factor:.6g}, the loss by {loss_factor:.6g}"
    counts = [count for count in labels if abs(factor / count - 1) < 1e-3 or abs(factor * count - 1) < 1e-3]
    if counts and abs(loss_factor / factor - 1) < 1e-3:
        which, other = ("B", "A") if factor > 1 else ("A", "B")
        text = f"{which}'s loss is the sum over {counts[0]} predictions, {other}'s is the mean"
    elif abs(norm := float(np.linalg.norm(b))) and factor < 1 and _is_round(norm):
        text = f"B clips its gradients to the norm {norm:.4g}"
    elif factor > 1 and _is_round(float(np.linalg.norm(a))):
        text = f"A clips its gradients to the norm {np.linalg.norm(a):.4g}"
    else:
        text = f"B's gradients are A's times {factor:.6g}: a loss scale that one of them does not undo"
    yield Cause(text, evidence, first.kind, remaining)


def _labels(comparison: Comparison, step: int) -> Iterator[tuple[str, Array, Array]]:
    for name in comparison.a.names(step, "batch")[1:]:
        tensor = comparison.a.tensor(step, "batch", name)
        yield name, tensor if tensor.dtype.kind in "iub" else tensor.argmax(axis=-1), tensor


def _is_round(value: float) -> bool:
    """Return True for a number with at most two significant digits, such as a limit that a user chose."""
    return value > 0 and abs(float(f"{value:.2g}") / value - 1) < 1e-4


def _penalty(comparison: Comparison, first: FirstDifference) -> Iterator[Cause]:
    """A penalty on the weights in one of the losses."""
    if first.kind not in ("loss", "gradient"):
        return
    weights = {name: a for name, a, _ in pairs_of(comparison, first.step, "weight")}
    factors, missed, size = {}, 0.0, 0.0
    for name, a, b in pairs_of(comparison, first.step, "gradient"):
        square = float(np.vdot(weights[name], weights[name]))
        factor = float(np.vdot(weights[name], b - a)) / square if square else 0.0
        rest = b - a - factor * weights[name]
        missed += float(np.vdot(rest, rest))
        size += float(np.vdot(b - a, b - a))
        factors[name] = factor
    remaining = np.sqrt(missed / size) if size else np.inf
    large = {name: factor for name, factor in factors.items() if abs(factor) > 0.01 * max(map(abs, factors.values()))}
    values = np.array(list(large.values()))
    if remaining > 0.02 or np.ptp(values) > 0.02 * abs(values.mean()):
        return
    which = "B" if values.mean() > 0 else "A"
    yield Cause(
        f"{which}'s loss has a penalty of {abs(values.mean()) / 2:.3g} times the squares of {_names(large, factors)}",
        "the gradients differ by a multiple of the weights",
        first.kind,
        float(remaining),
    )


def _names(some: dict[str, float], every: dict[str, float]) -> str:
    return "all weights" if len(some) == len(every) else ", ".join(some)


def _not_zeroed(comparison: Comparison, first: FirstDifference) -> Iterator[Cause]:
    """Gradients that are added to those of the step before."""
    if first.kind != "gradient" or first.step - 1 not in comparison.a.steps:
        return
    (before_a, before_b), (a, b) = _joined(comparison, first.step - 1), _joined(comparison, first.step)
    for which, total, other, before in (("B", b, a, before_b), ("A", a, b, before_a)):
        remaining = float(np.linalg.norm(total - other - before) / np.linalg.norm(total))
        if remaining <= _CONSTANT:
            text = f"{which} adds its gradients to those of the step before: it does not set them to zero"
            yield Cause(text, f"{which}'s gradients are a sum of two steps", "gradient", remaining)


def _joined(comparison: Comparison, step: int) -> tuple[Array, Array]:
    """Return all gradients of a step as one vector each."""
    pairs = [(a.ravel(), b.ravel()) for _, a, b in pairs_of(comparison, step, "gradient")]
    empty = np.zeros(0)
    return (np.concatenate([a for a, _ in pairs] or [empty]), np.concatenate([b for _, b in pairs] or [empty]))


def _precision(comparison: Comparison, first: FirstDifference) -> Iterator[Cause]:
    """Gradients in bfloat16, whose values have 8 significant bits."""
    if first.kind not in ("loss", "gradient"):
        return
    for which, gradients in zip("AB", _joined(comparison, first.step), strict=True):
        bits = gradients[gradients != 0].astype("float32").view("uint32")
        if bits.size and (bits & 0xFFFF == 0).mean() > 0.9:
            error = first.error or 0.0
            text = f"{which} computes in bfloat16"
            yield Cause(text, f"{which}'s gradients have 8 significant bits", first.kind, error)


def _statistics(comparison: Comparison, _: FirstDifference) -> Iterator[Cause]:
    """Another momentum of the running statistics, or variances divided by n."""
    changes: dict[bool, list[tuple[Array, Array, Array]]] = {False: [], True: []}
    before = {pair.a: comparison.a.tensor(0, "statistic", pair.a) for pair in comparison.statistics}
    for name, a, b in pairs_of(comparison, 0, "statistic"):
        changes["var" in name.lower()].append((before[name], a, b))
    if not changes[False] or not changes[True]:
        return
    means = [np.concatenate(column) for column in zip(*changes[False], strict=True)]
    factor, remaining = _factor(means[1] - means[0], means[2] - means[0])
    if remaining > _CONSTANT or not factor:
        return
    start, a, b = (np.concatenate(column) for column in zip(*changes[True], strict=True))
    if abs(factor - 1) > _CONSTANT:
        evidence = f"B's running means move {factor:.6g} times as far as A's"
        yield Cause(f"the momentum of batch norm: B's is {factor:.4g} times A's", evidence, "statistic", remaining)
    for momentum in (0.1, 0.01, 0.001, 0.05, 0.2, 1.0):
        variance_a, variance_b = (a - start) / momentum + start, (b - start) / (momentum * factor) + start
        ratio, rest = _factor(variance_a, variance_b)
        if rest <= 1e-4 and 10 * rest + 1e-6 < abs(ratio - 1) < 0.5:
            n = 1 / abs(ratio - 1) + (1 if ratio > 1 else 0)
            which = ("B", "A") if ratio > 1 else ("A", "B")
            if abs(n - round(n)) < max(0.02, 1e-5 * n**2):
                text = f"{which[0]}'s running variance divides by n - 1, {which[1]}'s by n"
                yield Cause(text, f"the ratio is {ratio:.8g}, so n is {round(n)}", "statistic", rest)
                return


def _factor(a: Array, b: Array) -> tuple[float, float]:
    """Return c of the nearest c a to b, and the relative error that it leaves."""
    square, size = float(np.vdot(a, a)), float(np.linalg.norm(b))
    factor = float(np.vdot(a, b)) / square if square else 0.0
    return factor, float(np.linalg.norm(b - factor * a)) / size if size else np.inf


def _update(comparison: Comparison, _: FirstDifference) -> Iterator[Cause]:
    """Another rule of the optimizer."""
    fits = fit_rules(comparison)
    if fits is None:
        return
    fit_a, same, fit_b = fits
    for field in _by_effect(fit_a.rule, fit_b.rule, comparison.b):
        values = [_value(field, getattr(one.rule, field)) for one in (fit_a, fit_b)]
        evidence = f"A's rule leaves {same.error:.2g} of B's update, with this change {fit_b.error:.1g} remains"
        yield Cause(
            f"the {rules.WORDS[field]} is {values[1]} in B, and {values[0]} in A", evidence, "update", fit_b.error
        )


def _by_effect(a: rules.Rule, b: rules.Rule, trace: Trace) -> list[str]:
    """Return the fields in which B's rule differs, that with the largest effect on its updates first."""
    fields, samples = rules.differences(a, b), rules.take_samples(trace)
    assert samples is not None  # it has a rule
    effects = {field: rules.fit(replace(b, **{field: getattr(a, field)}), samples).error for field in fields}
    return sorted(fields, key=lambda field: -effects[field])


def fit_rules(comparison: Comparison) -> tuple[rules.Fit, rules.Fit, rules.Fit] | None:
    """Find the rules of the optimizers: A's, A's on the updates of B, and B's.

    None if the traces do not tell: they lack gradients, or follow no known rule.
    """
    traces = comparison.a, comparison.b
    samples = [rules.take_samples(trace) for trace in traces]
    if samples[0] is None or samples[1] is None:
        return None
    declared = [rule for trace in traces if (rule := rules.declared_rule(trace)) is not None]
    fit_a = rules.find_rule(samples[0], [*declared, *rules.DEFAULTS])
    same = rules.fit(fit_a.rule, samples[1])
    fit_b = same if same.explains else rules.find_rule(samples[1], [fit_a.rule, *declared[::-1], *rules.DEFAULTS])
    return (fit_a, same, fit_b) if fit_a.explains and fit_b.explains else None


def _value(field: str, value: object) -> str:
    words = rules.VALUES.get(field, {}).get(value)
    return words or (f"{value:.6g}" if isinstance(value, float) else str(value))


def _frozen(comparison: Comparison, _: FirstDifference) -> Iterator[Cause]:
    """Weights that one of the trainings does not update, or that have no gradient."""
    for name, a, b in pairs_of(comparison, 0, "update"):
        if a.any() != b.any() and name not in comparison.without_gradient:
            which = "B" if a.any() else "A"
            yield Cause(f"{which} does not update {name}", "its values stay the same in step 0", "update", 0.0)


def _dropout(comparison: Comparison, first: FirstDifference) -> Iterator[Cause]:
    """Dropout that only one of the trainings applies; its values are random, so only the settings tell."""
    if first.kind not in ("loss", "gradient"):
        return
    active = [_active_dropout(trace) for trace in (comparison.a, comparison.b)]
    if bool(active[0]) != bool(active[1]):
        which, names = ("A", active[0]) if active[0] else ("B", active[1])
        text = f"dropout is active in {which} only: {', '.join(names)}"
        yield Cause(text, "by the settings of the layers; dropout is random", first.kind, first.error or 0.0)


def _active_dropout(trace: Trace) -> list[str]:
    return [
        name or kind
        for name, kind, settings in trace.header.layers
        if "dropout" in kind.lower() and "training=True" in settings and "p=0.0," not in settings
    ]


_CAUSES: dict[str, Callable[[Comparison, Any], Iterator[Cause]]] = {
    "initial weights": _weights,
    "batches": _batch,
    "sum or mean of the loss, clipping, loss scale": _gradient_factor,
    "penalty on the weights": _penalty,
    "gradients that are not set to zero": _not_zeroed,
    "bfloat16": _precision,
    "dropout": _dropout,
    "running statistics": _statistics,
    "weights that are not updated": _frozen,
    "rule of the optimizer": _update,
}


def _forward(comparison: Comparison, model: Model) -> Iterator[Cause]:
    """Differences between the networks that both compute."""
    sides = (("A", comparison.a, False), ("B", comparison.b, True))
    explained = {}
    for which, trace, is_b in sides:
        recorded = forward.read_step(trace, model, comparison.weights, is_b=is_b)
        explained[which] = forward.explain(recorded, model)
    if not all(one.explains for one in explained.values()):
        return
    words = {which: set(one.variant.words) for which, one in explained.items()}
    for which, one in explained.items():
        for text in one.variant.words:
            if text not in words["A"] & words["B"]:
                evidence = f"the float64 reference of {model.name} then computes {which}'s loss and gradients"
                yield Cause(f"{which} {text}", evidence, "loss", one.error)
