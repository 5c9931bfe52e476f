"""What a comparison of two traces leaves out, and the types of their tensors."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from polybench.schema.trace import TensorKind
from polybench.trace.comparison import Comparison, Errors
from polybench.trace.dtypes import rounding_unit
from polybench.trace.file import Trace

_OWNERS = {(True, False): "only A has", (False, True): "only B has", (False, False): "neither trace has"}
_SHOWN = 5
"""Names that a line lists."""

_Rows = list[tuple[str, bool, bool]]
"""Name of a tensor, True if A has it, True if B has it."""


def find_gaps(comparison: Comparison, compared: Mapping[int, Errors]) -> list[str]:
    """List what is not compared, in words: what a trace lacks, and numbers that tell nothing."""
    steps_by_gap: dict[str, list[int]] = {}
    for step, errors in compared.items():
        for gap in _gaps_of(comparison, step, errors):
            steps_by_gap.setdefault(gap, []).append(step)
    gaps = [gap if len(steps) == len(compared) else f"{gap} ({_steps(steps)})" for gap, steps in steps_by_gap.items()]
    if comparison.without_gradient:
        names = _list(sorted(comparison.without_gradient))
        follow = ", and running means that follow them" if comparison.statistics else ""
        gaps.append(f"updates of {names}, whose gradients are rounding{follow}")
    if only_one := sorted({*comparison.a.steps} ^ {*comparison.b.steps}):
        gaps.append(f"{_steps(only_one)}, which only one trace has")
    return gaps


def _gaps_of(comparison: Comparison, step: int, errors: Errors) -> Iterator[str]:
    if errors.loss is None:
        yield "the loss, which is not finite in both traces"
    for kind, tensors in errors.tensors.items():
        follows = comparison.without_gradient if kind in ("weight", "update") else frozenset()
        if infinite := [name for name, one in tensors.items() if one is None and name not in follows]:
            yield f"the {kind} of {_list(infinite)}, which is not finite in both traces"
    for noun, rows in (
        ("batches", _batches(comparison, step)),
        ("gradients", _gradients(comparison, step)),
        ("running statistics", _statistics(comparison, step)),
    ):
        for has, owner in _OWNERS.items():
            if names := [name for name, *own in rows if tuple(own) == has]:
                yield f"{noun}{'' if len(names) == len(rows) else f' of {_list(names)}'}, which {owner}"


def _batches(comparison: Comparison, step: int) -> _Rows:
    names = comparison.a.names(step, "batch"), comparison.b.names(step, "batch")
    pairs = list(itertools.zip_longest(*names))
    return [(one or other, one is not None, other is not None) for one, other in pairs] or [("", False, False)]


def _gradients(comparison: Comparison, step: int) -> _Rows:
    own, others = ({*trace.names(step, "gradient")} for trace in (comparison.a, comparison.b))
    return [(one.a, one.a in own, one.b in others) for one in comparison.weights]


def _statistics(comparison: Comparison, step: int) -> _Rows:
    own, others = (trace.names(step + 1, "statistic") for trace in (comparison.a, comparison.b))
    partners = {one.a: one.b for one in comparison.statistics}
    rows = [(name, True, partners.get(name) in others) for name in own]
    return rows + [(name, False, True) for name in others if name not in {partners.get(one) for one in own}]


def describe_dtypes(comparison: Comparison) -> Iterator[str]:
    """Iterate over what the types of the tensors show: another type of a whole training, or of single tensors."""
    traces = {"A": comparison.a, "B": comparison.b}
    usual = {which: _usual_dtype(trace) for which, trace in traces.items()}
    if usual["A"] != usual["B"]:
        yield f"the weights are {usual['A']} in A, and {usual['B']} in B"
    for which, trace in traces.items():
        by_dtype: dict[str, list[str]] = {}
        for words, dtype in _dtypes(trace):
            if rounding_unit(dtype) and dtype != usual[which]:
                by_dtype.setdefault(dtype, []).append(words)
        for dtype, names in by_dtype.items():
            yield f"{which} is a training in {usual[which]}, but has {dtype}: {_list(names)}"


def _usual_dtype(trace: Trace) -> str:
    counts = Counter(trace.dtype(0, "weight", name) for name in trace.names(0, "weight"))
    return counts.most_common(1)[0][0] if counts else "float32"


def _dtypes(trace: Trace) -> Iterator[tuple[str, str]]:
    """Iterate over the tensors of step 0 in words, and their types."""
    kinds: tuple[TensorKind, ...] = ("weight", "batch", "gradient", "statistic")
    for kind in kinds:
        for name in trace.names(0, kind):
            yield f"{kind} {name}" if kind != "batch" else name, trace.dtype(0, kind, name)


def _steps(steps: Iterable[int]) -> str:
    words = [*map(str, steps)]
    return f"step{'s' if len(words) > 1 else ''} {', '.join(words)}"


def _list(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
