"""`polybench trace diff`: the first difference of two recorded trainings, and the known causes that explain it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from polybench.errors import BadInput
from polybench.networks.model import Model
from polybench.schema.trace import (
    DifferenceKind,
    FirstDifference,
    StepErrors,
    TensorErrors,
    TraceDiffDocument,
    Undecided,
)
from polybench.trace.causes import find_causes
from polybench.trace.comparison import KINDS, TENSOR_KINDS, Comparison, Errors, compare_step, norm_error, pair, pairs_of
from polybench.trace.coverage import describe_dtypes, find_gaps
from polybench.trace.file import Trace
from polybench.trace.pairing import read_map
from polybench.trace.rounding import Judge, Judgement, Outcome
from polybench.trace.verdict import describe


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
        return _compare(comparison, {step: compare_step(comparison, step) for step in steps}, model)


def _compare(comparison: Comparison, compared: Mapping[int, Errors], model: Model | None) -> TraceDiffDocument:
    a, b = comparison.a, comparison.b
    judgements = Judge(comparison, compared).judgements
    steps = {step: _step_errors(step, errors) for step, errors in compared.items()}

    def located(found: tuple[int, DifferenceKind] | None) -> FirstDifference | None:
        return None if found is None else _located(comparison, steps, *found)

    first = located(_first(judgements, "differs"))
    causes, excluded, not_tried = find_causes(comparison, located(_first(judgements, "differs", "cannot tell")), model)
    earliest = min(causes, key=lambda cause: cause.step, default=None)
    if earliest is not None and (first is None or earliest.step < first.step):
        # Smaller than what rounding may do, but explained.
        first = located((earliest.step, earliest.explains))
    document = TraceDiffDocument(
        a=str(a.path),
        b=str(b.path),
        frameworks=(a.header.framework, b.header.framework),
        verdict="",
        first_difference=first,
        undecided=list(_undecided(judgements, first)),
        not_compared=find_gaps(comparison, compared),
        dtypes=list(describe_dtypes(comparison)),
        causes=causes,
        excluded=excluded,
        not_tried=not_tried,
        steps=list(steps.values()),
        tensors=[one for step, errors in compared.items() for one in _tensor_errors(comparison, step, errors)],
        pairs=[(one.a, one.b, one.layout.text) for one in comparison.weights],
        warnings=list(_warnings(a, b, list(steps))),
    )
    return msgspec.structs.replace(document, verdict=describe(document, judgements, comparison.unit))


def _first(judgements: Sequence[Judgement], *outcomes: Outcome) -> tuple[int, DifferenceKind] | None:
    """Return step and kind of the first judgement with one of these outcomes."""
    return next(((one.step, one.kind) for one in judgements if one.outcome in outcomes), None)


def _located(
    comparison: Comparison, steps: Mapping[int, StepErrors], step: int, kind: DifferenceKind
) -> FirstDifference:
    return FirstDifference(step, kind, _worst(comparison, step, kind), getattr(steps[step], kind))


def _undecided(judgements: Sequence[Judgement], first: FirstDifference | None) -> Iterator[Undecided]:
    """Iterate over the errors before the first difference that rounding may explain."""
    for one in judgements:
        if first is not None and (one.step, KINDS.index(one.kind)) >= (first.step, KINDS.index(first.kind)):
            return
        if one.outcome == "cannot tell":
            yield Undecided(one.step, one.kind, one.tensor, one.error, min(one.explains, 1.0))


def _step_errors(step: int, errors: Errors) -> StepErrors:
    weight, gradient, statistic, update = (norm_error(errors.tensors[kind].values()) for kind in TENSOR_KINDS)
    return StepErrors(step, *map(_finite, (weight, errors.batch, errors.loss, gradient, statistic, update)))


def _tensor_errors(comparison: Comparison, step: int, errors: Errors) -> Iterator[TensorErrors]:
    for weight in comparison.weights:
        found = (errors.tensors[kind].get(weight.a) for kind in ("weight", "gradient", "update"))
        yield TensorErrors(step, weight.a, *(None if one is None else _finite(one.error) for one in found))


def _worst(comparison: Comparison, step: int, kind: DifferenceKind) -> str:
    """Return the tensor with the largest share of a difference."""
    if kind in ("loss", "batch"):
        return kind if kind == "loss" else comparison.inputs.tensor
    pairs = [*pairs_of(comparison, step, kind)]
    if not pairs:  # only the initial statistics differ
        pairs = [*pairs_of(comparison, step - 1, kind)]
    sizes = {name: float(((a - b) ** 2).sum()) for name, a, b in pairs}
    return max(sizes, key=lambda name: sizes[name])


def _finite(error: float | None) -> float | None:
    return error if error is not None and math.isfinite(error) else None


def _warnings(a: Trace, b: Trace, steps: Sequence[int]) -> Iterator[str]:
    for trace in (a, b):
        if missing := [step for step in trace.header.steps if step not in trace.steps]:
            yield f"{trace.path}: the training ended before the steps {', '.join(map(str, missing))}"
        if lost := [step for step, record in trace.steps.items() if record.loss is None]:
            yield f"{trace.path}: the loss is not finite in the steps {', '.join(map(str, lost))}"
    if len(steps) == 1:
        yield "only step 0 is in both traces: rules of optimizers need steps 0, 1 and 2"
