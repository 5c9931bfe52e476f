"""The verdict of `polybench trace diff`: what differs, what agrees, and what was not compared."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.schema.trace import DifferenceKind, FirstDifference, TraceDiffDocument, Undecided
from polybench.trace.comparison import KINDS
from polybench.trace.dtypes import rounding_unit, type_with_unit
from polybench.trace.rounding import Judgement

_NOUNS: dict[DifferenceKind, str] = {
    "batch": "batches",
    "weight": "weights",
    "loss": "loss",
    "gradient": "gradients",
    "statistic": "running statistics",
    "update": "update",
}


def describe(document: TraceDiffDocument, judgements: Sequence[Judgement], unit: float) -> str:
    """Return the verdict; `unit` is the rounding unit of the coarsest arithmetic in both trainings."""
    steps = [one.step for one in document.steps]
    if (first := document.first_difference) is not None:
        causes = " ".join(_sentence(cause.cause) for cause in document.causes)
        return f"{_difference(first, judgements, steps)}. {causes or 'No known cause explains it.'}"
    if document.undecided:
        found = _undecided(document.undecided[0], unit)
    else:
        found = f"no difference in the steps {', '.join(map(str, steps))}, up to rounding"
    return f"{found}. Not compared: {'; '.join(document.not_compared)}" if document.not_compared else found


def _difference(first: FirstDifference, judgements: Sequence[Judgement], steps: Sequence[int]) -> str:
    """Return the first difference in words, after the kinds that agree before it in the same step."""
    agreeing = [
        _NOUNS[one.kind]
        for one in judgements
        if one.step == first.step and one.outcome == "agrees" and KINDS.index(one.kind) < KINDS.index(first.kind)
    ]
    before = f"{' and '.join(filter(None, [', '.join(agreeing[:-1]), *agreeing[-1:]]))} agree; " if agreeing else ""
    size = f" by {first.error:.2g}" if first.error is not None else ""
    verb = "differs" if first.kind in ("loss", "update") else "differ"
    where = "" if first.tensor in ("loss", "") else f", most in {first.tensor}"
    parted = first.kind == "weight" and first.step > 0
    after = f"; they part after step {max(step for step in steps if step < first.step)}" if parted else ""
    return f"step {first.step}: {before}the {_NOUNS[first.kind]} {verb}{size}{where}{after}"


def _undecided(one: Undecided, unit: float) -> str:
    dtype = type_with_unit(unit)
    better = "float32" if unit > rounding_unit("float32") else "float64"
    what = f"the {_NOUNS[one.kind]}" if not one.tensor else f"the {one.kind} of {one.tensor}"
    return (
        f"cannot tell the trainings apart at this precision: in step {one.step}, rounding in {dtype} may explain"
        f" {min(one.explains, 1.0):.0%} of {what}, and the error is {one.error:.2g}; record both in {better}"
    )


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
