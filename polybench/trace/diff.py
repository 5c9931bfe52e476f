"""`polybench trace diff`: the first difference of two recorded trainings, and the known causes that explain it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from polybench.errors import BadInput
from polybench.networks.model import Model
from polybench.schema.trace import Cause, DifferenceKind, FirstDifference, StepErrors, TensorErrors, TraceDiffDocument
from polybench.trace.causes import find_causes
from polybench.trace.comparison import TOLERANCE, Comparison, Squares, norm_error, pair, pairs_of, squares, tolerance
from polybench.trace.file import Trace
from polybench.trace.pairing import read_map, relative_error


def diff(a: Path, b: Path, names: Path | None = None, model: Model | None = None) -> TraceDiffDocument:
    """Compare two traces.

    Args:
        a, b: the files.
        names: a TOML file of lines `"name in A" = "name in B"`, where shapes and names do not tell.
        model: the network that both should compute, for causes in the forward pass.

    Raises:
        BadInput: a file is not a trace, or the two have no recorded step or no network in common.
    """
    with Trace(a) as trace_a, Trace(b) as trace_b:
        steps = sorted({*trace_a.steps} & {*trace_b.steps})
        if not steps or steps[0] != 0:
            recorded = (", ".join(map(str, trace.steps)) for trace in (trace_a, trace_b))
            listed = " and ".join(recorded)
            raise BadInput(f"the traces have the steps {listed}: expected step 0 in both; record with steps=(0, 1, 2)")
        comparison = pair(trace_a, trace_b, read_map(names))
        squares_by_step = {step: {kind: squares(comparison, step, kind) for kind in _TENSORS} for step in steps}
        errors = [_errors(comparison, step, squares_by_step[step]) for step in steps]
        first = _first_difference(comparison, errors)
        found = find_causes(comparison, first, model)
        earliest = min(found.causes, key=lambda cause: cause.step, default=None)
        if earliest is not None and (first is None or earliest.step < first.step):
            # Smaller than what rounding may do, but explained.
            step, kind = earliest.step, earliest.explains
            error = getattr(errors[steps.index(step)], kind)
            first = FirstDifference(step, kind, _worst(comparison, step, kind), _finite(error))
        return TraceDiffDocument(
            a=str(a),
            b=str(b),
            frameworks=(trace_a.header.framework, trace_b.header.framework),
            verdict=_verdict(first, found.causes, errors),
            first_difference=first,
            causes=found.causes,
            excluded=found.excluded,
            not_tried=found.not_tried,
            steps=[StepErrors(one.step, *(_finite(getattr(one, kind)) for kind in TOLERANCE)) for one in errors],
            tensors=[one for step in steps for one in _tensor_errors(comparison, step, squares_by_step[step])],
            pairs=[(one.a, one.b, one.layout.text) for one in comparison.weights],
            warnings=list(_warnings(trace_a, trace_b, steps)),
        )


_TENSORS: tuple[DifferenceKind, ...] = ("weight", "gradient", "statistic", "update")
"""Kinds of differences that are compared tensor by tensor."""

_Compared = Mapping[DifferenceKind, Mapping[str, Squares | None]]


def _errors(comparison: Comparison, step: int, compared: _Compared) -> StepErrors:
    losses = comparison.a.steps[step].loss, comparison.b.steps[step].loss
    loss = None if None in losses else relative_error(*losses)  # type: ignore[arg-type]  # None is excluded
    weight, gradient, statistic, update = (norm_error(compared[kind]) for kind in _TENSORS)
    return StepErrors(step, weight, comparison.inputs.errors.get(step), loss, gradient, statistic, update)


def _tensor_errors(comparison: Comparison, step: int, compared: _Compared) -> Iterator[TensorErrors]:
    for weight in comparison.weights:
        found = (compared[kind].get(weight.a) for kind in ("weight", "gradient", "update"))
        yield TensorErrors(step, weight.a, *(None if one is None else _finite(one.error) for one in found))


def _first_difference(comparison: Comparison, errors: Sequence[StepErrors]) -> FirstDifference | None:
    for one in errors:
        for kind in TOLERANCE:
            error = getattr(one, kind)
            if error is not None and not error <= tolerance(comparison, one.step, kind):
                if kind == "update" and comparison.rules is not None and not comparison.rules.fields:
                    continue  # Adam makes full updates of gradients that are rounding
                return FirstDifference(one.step, kind, _worst(comparison, one.step, kind), _finite(error))
    return None


def _worst(comparison: Comparison, step: int, kind: DifferenceKind) -> str:
    """Return the tensor with the largest share of a difference."""
    if kind in ("loss", "batch"):
        return kind if kind == "loss" else comparison.inputs.tensor
    sizes = {name: float(((a - b) ** 2).sum()) for name, a, b in pairs_of(comparison, step, kind)}
    return max(sizes, key=lambda name: sizes[name])


def _finite(error: float | None) -> float | None:
    return error if error is not None and math.isfinite(error) else None


_NOUNS = {
    "batch": "batches",
    "weight": "weights",
    "loss": "loss",
    "gradient": "gradients",
    "statistic": "running statistics",
    "update": "update",
}


def _verdict(first: FirstDifference | None, causes: Sequence[Cause], errors: Sequence[StepErrors]) -> str:
    if first is None:
        return f"no difference in the steps {', '.join(str(one.step) for one in errors)}, up to rounding"
    at_step = next(one for one in errors if one.step == first.step)
    kinds = list(TOLERANCE)
    agreeing = [_NOUNS[kind] for kind in kinds[: kinds.index(first.kind)] if getattr(at_step, kind) is not None]
    before = f"{' and '.join(filter(None, [', '.join(agreeing[:-1]), *agreeing[-1:]]))} agree" if agreeing else ""
    size = "" if first.error is None else f" by {first.error:.2g}"
    verb = "differs" if first.kind in ("loss", "update") else "differ"
    where = "" if first.tensor in ("loss", "") else f", most in {first.tensor}"
    found = f"step {first.step}: {f'{before}; ' if before else ''}the {_NOUNS[first.kind]} {verb}{size}{where}"
    if first.kind == "weight" and first.step > 0:
        found += f"; they part after step {max(one.step for one in errors if one.step < first.step)}"
    return f"{found}. {' '.join(f'{_sentence(cause.cause)}' for cause in causes) or 'No known cause explains it.'}"


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _warnings(a: Trace, b: Trace, steps: Sequence[int]) -> Iterator[str]:
    for trace in (a, b):
        if missing := [step for step in trace.header.steps if step not in trace.steps]:
            yield f"{trace.path}: the training ended before the steps {', '.join(map(str, missing))}"
        if lost := [step for step, record in trace.steps.items() if record.loss is None]:
            yield f"{trace.path}: the loss is not finite in the steps {', '.join(map(str, lost))}"
    if only_one := sorted({*a.steps} ^ {*b.steps}):
        yield f"steps in one trace only are not compared: {', '.join(map(str, only_one))}"
    if len(steps) == 1:
        yield "only step 0 is in both traces: rules of optimizers need steps 0, 1 and 2"
