"""Known causes of a difference, each tried on the recorded numbers. ADD A CAUSE: a function, and its row in `_CAUSES`.

Every cause is either explained to rounding or excluded: nothing is guessed from names or settings alone, except for
dropout, which is random.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, get_args

import msgspec
import numpy as np

from polybench.networks.model import Model
from polybench.schema.trace import Cause, DifferenceKind, FirstDifference
from polybench.trace import forward, loss_causes
from polybench.trace import update_rules as rules
from polybench.trace.comparison import Comparison, pairs_of, squares
from polybench.trace.dtypes import BFLOAT16, significant_bits
from polybench.trace.file import Array, Trace
from polybench.trace.pairing import relative_error
from polybench.trace.rounding import STORED

_CONSTANT = 1e-3
"""Largest relative spread of a factor that counts as one number."""

_FEWEST = 3
"""Numbers with one factor that are no coincidence."""


class Found(NamedTuple):
    """The causes that explain, in the order of a training step, conventions last, and the names of the others."""

    causes: list[Cause]
    excluded: list[str]
    not_tried: list[str]


def find_causes(comparison: Comparison, first: FirstDifference | None, model: Model | None) -> Found:
    """Try all known causes.

    Causes that explain to rounding are found without a first difference too: their effect can be smaller than
    what rounding may do elsewhere.
    """
    first = first or FirstDifference(0, "update", "", None)
    found = Found([], [], [])
    for name, find in _CAUSES.items():
        if causes := list(find(comparison, first)):
            found.causes.extend(causes)
        elif _is_unknown(name, comparison, first):
            found.not_tried.append(name)
        else:
            found.excluded.append(name)
    if model is None:
        found.not_tried.extend(f"{name} (needs --model)" for name in forward.FORWARD_CAUSES)
    elif (of_network := _forward(comparison, model)) is None:
        found.not_tried.extend(f"{name} (no variant of {model.name} explains both)" for name in forward.FORWARD_CAUSES)
    else:
        is_scaled = any(map(_is_factor, found.causes))
        found = found._replace(causes=[*map(_refute_evaluation, found.causes)])
        found.causes.extend(one for one in of_network if not (is_scaled and _is_factor(one)))
        found.excluded.extend(() if of_network else forward.FORWARD_CAUSES)
    order = get_args(DifferenceKind).index
    return found._replace(causes=sorted(found.causes, key=lambda cause: (cause.is_convention, order(cause.explains))))


def _is_factor(cause: Cause) -> bool:
    return any(words in cause.cause for words in (forward.SUMMED, _CLIPS, _SCALES, _BOTH_CLIP))


def _refute_evaluation(cause: Cause) -> Cause:
    """Correct a cause if the loss of both traces is that of batch norm over the batch."""
    if not cause.cause.endswith(_EVALUATION):
        return cause
    text = f"{cause.cause.removesuffix(_EVALUATION)}{_NOT_UPDATED}"
    return msgspec.structs.replace(cause, cause=text, explains="statistic", remaining_error=0.0)


def _is_unknown(name: str, comparison: Comparison, first: FirstDifference) -> bool:
    """Return True if a cause that was not found is not excluded either: the traces do not tell."""
    if _CAUSES[name] in (_gradient_factor, _penalty, _not_zeroed, _dropout, *_OF_LOSS):
        return first.kind in ("weight", "batch")  # gradients differ anyway
    if _CAUSES[name] is _statistics:
        return not comparison.statistics
    return _CAUSES[name] is _update and comparison.rules is None


def _weights(comparison: Comparison, first: FirstDifference) -> Iterator[Cause]:
    """Initial weights that are not the same."""
    if (first.step, first.kind) != (0, "weight"):
        return
    pairs = squares(comparison, 0, "weight")
    different = [name for name, one in pairs.items() if one is None or not one.error <= STORED * one.unit]
    words = "all weights" if len(different) == len(pairs) else ", ".join(different[:5])
    yield Cause(
        f"B starts from other initial weights: {words}",
        f"{len(different)} of {len(pairs)} tensors differ, in every order of their axes",
        "weight",
        first.error or 0.0,
    )


def _batch(comparison: Comparison, _: FirstDifference) -> Iterator[Cause]:
    """Inputs or labels that are not the same."""
    inputs = comparison.inputs
    if inputs.cause:
        yield Cause(
            inputs.cause, f"compared value by value in {inputs.tensor}", "batch", inputs.remaining_error, inputs.step
        )


def _gradient_factor(comparison: Comparison, first: FirstDifference) -> Iterator[Cause]:
    """Gradients that are a multiple, or clipped: a sum for a mean, a limit of a norm, a loss scale."""
    if first.kind not in ("loss", "gradient"):
        return
    a, b = _joined(comparison, first.step)
    factor, remaining = _factor(a, b)
    is_multiple = remaining <= _CONSTANT and abs(factor - 1) > _CONSTANT
    losses = comparison.a.steps[first.step].loss, comparison.b.steps[first.step].loss
    loss_factor = losses[1] / losses[0] if losses[0] and losses[1] else np.nan
    evidence = f"all gradients are multiplied by {factor:.6g}"
    evidence += "" if np.isnan(loss_factor) else f", the loss by {loss_factor:.6g}"
    counts = [
        count
        for count in _label_counts(comparison, first.step)
        if abs(factor / count - 1) < 1e-3 or abs(factor * count - 1) < 1e-3
    ]
    if is_multiple and counts and abs(loss_factor / factor - 1) < 1e-3:
        which, other = ("B", "A") if factor > 1 else ("A", "B")
        text = f"{which} {forward.SUMMED} ({counts[0]} predictions), {other} computes its mean"
        yield Cause(text, evidence, first.kind, remaining, first.step)
    elif (clipping := _find_clipping(comparison, first.step)) is not None:
        yield _describe_clipping(comparison, first, clipping)
    elif is_multiple:
        text = f"B {_SCALES} by {factor:.6g}: a loss scale that one of the programs does not undo"
        yield Cause(text, evidence, first.kind, remaining, first.step)


_CLIPS = "clips its gradients to the norm"
_BOTH_CLIP = "both clip"
_SCALES = "scales its gradients"


class _Clipping(NamedTuple):
    """The trace whose recorded gradients are clipped ones of the other trace, the limit, and the remaining error."""

    which: str
    clip: rules.Clip
    error: float


def _find_clipping(comparison: Comparison, step: int) -> _Clipping | None:
    """Find a limit, of a norm or of values, that makes the gradients of one trace those of the other."""
    pairs = [(a.ravel(), b.ravel()) for _, a, b in pairs_of(comparison, step, "gradient")]
    gradients = _joined(comparison, step)
    if not relative_error(*gradients) > _CONSTANT or np.count_nonzero(gradients) < 2 * _FEWEST:
        return None
    tensors = np.repeat(np.arange(len(pairs)), [a.size for a, _ in pairs])
    norms = [np.array([np.linalg.norm(pair[index]) for pair in pairs]) for index in (0, 1)]
    for which, one, other in (("A", 0, 1), ("B", 1, 0)):
        clipped, original = gradients[one], gradients[other]
        limits = {"all": np.linalg.norm(clipped), "tensor": norms[one].max(), "value": np.abs(clipped).max()}
        for form in get_args(rules.ClipForm):
            limit = float(limits[form])
            clip = rules.Clip(float(f"{limit:.2g}"), form)
            error = relative_error(clipped, clip.apply(original, norms[other], tensors)) if _is_round(limit) else np.inf
            if error <= _CONSTANT:
                return _Clipping(which, clip, error)
    return None


def _describe_clipping(comparison: Comparison, first: FirstDifference, clipping: _Clipping) -> Cause:
    """Name the clipping of both traces: that before the recording, and that in the other one's optimizer."""
    which, clip, error = clipping
    other = "B" if which == "A" else "A"
    fits = comparison.rules and {"A": comparison.rules.a, "B": comparison.rules.b}
    in_optimizer = fits[other].rule.clip if fits else None
    text = f"{which} clips {_clipped(clip, 'its')}"
    if in_optimizer == clip:
        text = f"{_BOTH_CLIP} {_clipped(clip, 'their')}, {which} before the recording and {other} in its optimizer"
    elif in_optimizer is not None:
        text += f" before the recording, {other} clips {_clipped(in_optimizer, 'its')} in its optimizer"
    evidence = f"clipping makes the recorded gradients of {other} those of {which}"
    return Cause(text, evidence, first.kind, error, first.step, is_convention=in_optimizer == clip)


def _clipped(clip: rules.Clip, whose: str) -> str:
    """Describe what is clipped."""
    match clip.form:
        case "all":
            return f"{whose} gradients to the norm {clip.limit:.4g}"
        case "tensor":
            return f"the gradient of each tensor to the norm {clip.limit:.4g}"
        case "value":
            return f"each value of {whose} gradients to {clip.limit:.4g}"


def _label_counts(comparison: Comparison, step: int) -> Iterator[int]:
    """Iterate over the number of labels in each tensor of a batch but the first one."""
    for name in comparison.a.names(step, "batch")[1:]:
        tensor = comparison.a.tensor(step, "batch", name)
        if tensor.size:
            yield tensor.size // tensor.shape[-1] if tensor.dtype.kind == "f" and tensor.ndim > 1 else tensor.size


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
    tells = sum(np.count_nonzero(weights[name]) for name in large) >= _FEWEST
    if not tells or not remaining <= 0.02 or np.ptp(values) > 0.02 * abs(values.mean()):
        return
    which = "B" if values.mean() > 0 else "A"
    yield Cause(
        f"{which}'s loss has a penalty of {abs(values.mean()) / 2:.3g} times the squares of {_names(large, factors)}",
        "the gradients differ by a multiple of the weights",
        first.kind,
        float(remaining),
        first.step,
    )


def _names(some: dict[str, float], every: dict[str, float]) -> str:
    return "all weights" if len(some) == len(every) else ", ".join(some)


def _not_zeroed(comparison: Comparison, first: FirstDifference) -> Iterator[Cause]:
    """Gradients that are added to those of the step before."""
    if first.kind != "gradient" or first.step - 1 not in comparison.a.steps:
        return
    (before_a, before_b), (a, b) = _joined(comparison, first.step - 1), _joined(comparison, first.step)
    if before_a.size != a.size:
        return
    for which, total, other, before in (("B", b, a, before_b), ("A", a, b, before_a)):
        remaining = relative_error(total, other + before)
        if before.any() and remaining <= _CONSTANT:
            text = f"{which} adds its gradients to those of the step before: it does not set them to zero"
            yield Cause(text, f"{which}'s gradients are a sum of two steps", "gradient", remaining, first.step)


def _joined(comparison: Comparison, step: int) -> tuple[Array, Array]:
    """Return all gradients of a step as one vector each."""
    pairs = [(a.ravel(), b.ravel()) for _, a, b in pairs_of(comparison, step, "gradient")]
    empty = np.zeros(0)
    return (np.concatenate([a for a, _ in pairs] or [empty]), np.concatenate([b for _, b in pairs] or [empty]))


def _precision(comparison: Comparison, _: FirstDifference) -> Iterator[Cause]:
    """Gradients whose values have the significant bits of bfloat16 or float16."""
    pairs = [(a, b) for _, a, b in pairs_of(comparison, 0, "gradient")]
    bits = [significant_bits(gradients) for gradients in zip(*pairs, strict=True)]
    if pairs and bits[0] != bits[1]:
        which, fewer = ("A", bits[0]) if bits[0] < bits[1] else ("B", bits[1])
        text = f"{which} computes in {'bfloat16' if fewer == BFLOAT16 else 'float16'}"
        evidence = f"gradients of {which} have {fewer} significant bits"
        yield Cause(text, evidence, "gradient", relative_error(*_joined(comparison, 0)))


def _statistics(comparison: Comparison, first: FirstDifference) -> Iterator[Cause]:
    """Running statistics that stay the same, another momentum, or variances divided by n."""
    changes: dict[bool, list[tuple[Array, Array, Array]]] = {False: [], True: []}
    before = {pair.a: comparison.a.tensor(0, "statistic", pair.a) for pair in comparison.statistics}
    for name, a, b in pairs_of(comparison, 0, "statistic"):
        changes["var" in name.lower()].append((before[name].ravel(), a.ravel(), b.ravel()))
    if not changes[False] or not changes[True]:
        return
    means = [np.concatenate(column) for column in zip(*changes[False], strict=True)]
    if np.array_equal(means[0], means[1]) != np.array_equal(means[0], means[2]):
        which = "A" if np.array_equal(means[0], means[1]) else "B"
        evidence = f"{which}'s running means stay the same in step 0"
        if first.step == 0 and first.kind in ("loss", "gradient"):
            yield Cause(f"{which} {_EVALUATION}", evidence, "loss", first.error or 0.0)
        else:
            yield Cause(f"{which} {_NOT_UPDATED}", evidence, "statistic", 0.0)
        return
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
            if abs(n - round(n)) < max(0.02, 1e-5 * n**2):
                evidence = f"the ratio is {ratio:.8g}, so n is {_known_digits(n, rest * n**2)}"
                is_convention = [_is_keras(comparison.a), _is_keras(comparison.b)] == [ratio > 1, ratio < 1]
                text = "{}'s running variance divides by n - 1, {}'s by n".format(*("BA" if ratio > 1 else "AB"))
                yield Cause(text, evidence, "statistic", rest, is_convention=is_convention)
                return


_EVALUATION = "normalizes with running statistics, as in evaluation, not with those of the batch"
_NOT_UPDATED = "does not update its running statistics"


def _is_keras(trace: Trace) -> bool:
    return trace.header.framework.startswith("keras")


def _known_digits(n: float, error: float) -> str:
    """Return a whole number without the digits that the error leaves open: 1027, known to 10, is about 1030."""
    unknown = math.ceil(math.log10(2 * error)) if error >= 0.5 else 0
    return f"about {round(n, -unknown):.0f}" if unknown else str(round(n))


def _factor(a: Array, b: Array) -> tuple[float, float]:
    """Return c of the nearest c a to b, and the relative error that it leaves."""
    square, size = float(np.vdot(a, a)), float(np.linalg.norm(b))
    factor = float(np.vdot(a, b)) / square if square else 0.0
    tells = size and np.count_nonzero(a) >= _FEWEST  # any factor fits one number
    return factor, float(np.linalg.norm(b - factor * a)) / size if tells else np.inf


def _update(comparison: Comparison, first: FirstDifference) -> Iterator[Cause]:
    """Another rule of the optimizer."""
    if (found := comparison.rules) is None:
        return
    for field in found.fields:
        if field == "clip" and _find_clipping(comparison, first.step) is not None:
            continue  # a cause of the gradients names both
        values = [_value(field, getattr(one.rule, field)) for one in (found.a, found.b)]
        evidence = (
            f"A's rule leaves {found.a_on_b.error:.2g} of B's update, with this change {found.b.error:.1g} remains"
        )
        text = f"the {rules.WORDS[field]} {'are' if field in _PLURAL else 'is'} {values[1]} in B, and {values[0]} in A"
        is_convention = field == "epsilon_place" and any(
            _is_keras(trace) and fit.rule.epsilon_place == rules.KERAS_EPSILON[fit.rule.family]
            for trace, fit in ((comparison.a, found.a), (comparison.b, found.b))
        )
        yield Cause(text, evidence, "update", found.b.error, found.step, is_convention)


_PLURAL = ("betas", "decays")


def _value(field: str, value: object) -> str:
    words = rules.VALUES.get(field, {}).get(value)
    if isinstance(value, tuple) and not words:
        return ", ".join(f"{one:.6g}" for one in value)
    return words or (f"{value:.6g}" if isinstance(value, float) else str(value))


def _frozen(comparison: Comparison, _: FirstDifference) -> Iterator[Cause]:
    """Weights that one of the trainings does not update, or that have no gradient."""
    weights = {name: a for name, a, _ in pairs_of(comparison, 0, "weight")}
    for name, a, b in pairs_of(comparison, 0, "update"):
        is_lost = np.linalg.norm(a + b) <= comparison.unit * np.linalg.norm(weights[name])  # in rounding
        if a.any() != b.any() and not is_lost and name not in comparison.without_gradient:
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
        evidence = "by the settings of the layers; dropout is random"
        yield Cause(text, evidence, first.kind, first.error or 0.0, first.step)


def _active_dropout(trace: Trace) -> list[str]:
    return [
        name or kind
        for name, kind, settings in trace.header.layers
        if "dropout" in kind.lower() and _DROPOUT.search(settings)
    ]


_DROPOUT = re.compile(r"p=0?\.0*[1-9].*training=True|'rate': 0?\.0*[1-9]")
"""Settings of a layer of PyTorch that is in training mode, or of Keras, with a positive rate."""


_CAUSES: dict[str, Callable[[Comparison, FirstDifference], Iterator[Cause]]] = {
    "initial weights": _weights,
    "batches": _batch,
    "sum or mean of the loss, clipping, loss scale": _gradient_factor,
    "squared error of all targets and predictions": loss_causes.broadcast,
    "mean loss of the epoch": loss_causes.running_mean,
    "penalty on the weights": _penalty,
    "gradients that are not set to zero": _not_zeroed,
    "bfloat16": _precision,
    "dropout": _dropout,
    "running statistics": _statistics,
    "weights that are not updated": _frozen,
    "rule of the optimizer": _update,
}


_OF_LOSS = (loss_causes.broadcast, loss_causes.running_mean)

_SAME_LOSS = 1e-6
"""Relative difference of two losses that only rounding explains."""


def _forward(comparison: Comparison, model: Model) -> list[Cause] | None:
    """Return the differences between the networks that both compute; None if a trace computes no known variant."""
    explained, words, losses = {}, {}, []
    for which, trace in (("A", comparison.a), ("B", comparison.b)):
        recorded = forward.read_step(trace, model, comparison.weights, is_b=which == "B")
        explained[which] = forward.explain(recorded, model)
        if not explained[which].explains:
            return None
        losses.append(recorded.loss)
        norm = float(np.sqrt(sum(float((one**2).sum()) for one in recorded.gradients.values())))
        scaling = f"{_CLIPS} {norm:.4g}" if _is_round(norm) else _SCALES
        words[which] = [scaling if text == forward.SCALED else text for text in explained[which].variant.words]
    has_same_loss = relative_error(*losses) <= _SAME_LOSS
    return [
        Cause(
            f"{which} {text}",
            f"so {model.name} in the float64 reference has {which}'s loss and gradients",
            "gradient" if has_same_loss else "loss",
            explained[which].error,
            is_convention=text == forward.FIRST_NEAR_MAXIMUM and trace.header.framework in ("flux", "lux"),
        )
        for which, other, trace in (("A", "B", comparison.a), ("B", "A", comparison.b))
        for text in words[which]
        if text not in words[other]
    ]
