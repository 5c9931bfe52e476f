"""Recorded trainings: the header and the steps of a trace file, and the documents of `polybench trace`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from polybench.schema.options import Amount, NaturalInt

TRACE_SCHEMA = "polybench.trace/1"

TensorKind = Literal["batch", "weight", "gradient", "statistic", "optimizer"]
"""Kinds of tensors in a trace; "statistic" is a running statistic, "optimizer" the optimizer's state."""

DifferenceKind = Literal["weight", "batch", "loss", "gradient", "statistic", "update"]
"""Kinds of differences, in the order in which a step computes it. "weight" are those before the step."""


class TraceHeader(msgspec.Struct, kw_only=True):
    """The facts about a recorded training beside its tensors.

    `optimizer` has the optimizer's own settings, by their names in the framework; `optimizer_name` is its class.
    `layers` lists name, class and settings of each layer; `flags` are the framework's global switches that
    change arithmetic. `steps` are the recorded ones, counted from 0.
    """

    schema: str
    framework: str
    versions: dict[str, str]
    steps: list[NaturalInt]
    optimizer_name: str | None = None
    optimizer: dict[str, Any] = {}
    layers: list[tuple[str, str, str]] = []
    flags: dict[str, Any] = {}


class StepRecord(msgspec.Struct, frozen=True):
    """The last entry of a recorded step. `loss` is null if it is not finite; `seconds` is the time of recording.

    `dtypes` has the types that NumPy lacks, by kind and name ("weight/conv1.weight": "bfloat16"): the trace stores such
    tensors in float32.
    """

    loss: float | None
    batch_sha256: str
    seconds: Amount
    dtypes: dict[str, str] = {}


class FirstDifference(msgspec.Struct):
    """The first recorded difference: the tensor's name in A, and the relative error norm(a - b) / norm(a)."""

    step: NaturalInt
    kind: DifferenceKind
    tensor: str
    error: float | None


class Undecided(msgspec.Struct):
    """An error that may be a difference or rounding, of a tensor with this name in A.

    `explains` is the largest error that rounding explains. Weights after unrecorded steps are compared by what these
    steps have added.
    """

    step: NaturalInt
    kind: DifferenceKind
    tensor: str
    error: Amount
    explains: Amount


class Cause(msgspec.Struct):
    """A known cause, and what it leaves unexplained.

    `explains` is the kind of difference; `remaining_error` is what remains of it with this cause taken into account.
    `step` is the first recorded step in which it shows. `is_convention` is True if one of the frameworks always does
    that, so that no setting of a program changes it.
    """

    cause: str
    evidence: str
    explains: DifferenceKind
    remaining_error: Amount
    step: NaturalInt = 0
    is_convention: bool = False


class StepErrors(msgspec.Struct, frozen=True):
    """Relative errors of one recorded step; null if one of the traces lacks the tensors."""

    step: NaturalInt
    weight: float | None
    batch: float | None
    loss: float | None
    gradient: float | None
    statistic: float | None
    update: float | None


class TensorErrors(msgspec.Struct):
    """Relative errors of a weight, its gradient and its update in one step; null as in `StepErrors`.

    Gradients that are rounding, and the updates that they cause, are null too.
    """

    step: NaturalInt
    tensor: str
    weight: float | None
    gradient: float | None
    update: float | None


class TraceDiffDocument(msgspec.Struct, kw_only=True):
    """Document of `polybench trace diff`.

    `undecided` are errors that may be differences or rounding. `not_compared` lists in words what was not compared, and
    `dtypes` which types differ. `excluded` are the causes that were tried and explain nothing; the traces do not tell
    about those `not_tried`.
    """

    schema: str = "polybench.trace-diff/1"
    a: str
    b: str
    frameworks: tuple[str, str]
    verdict: str
    first_difference: FirstDifference | None = None
    undecided: list[Undecided] = []
    not_compared: list[str] = []
    dtypes: list[str] = []
    causes: list[Cause] = []
    excluded: list[str] = []
    not_tried: list[str] = []
    steps: list[StepErrors] = []
    tensors: list[TensorErrors] = []
    """By step, then in the order of A."""
    pairs: list[tuple[str, str, str]] = []
    """Name in A, name in B, and how B's tensor becomes A's."""
    warnings: list[str] = []


class TraceSummary(msgspec.Struct, kw_only=True):
    """Document of `polybench trace show`: the header, steps by number, gradients by step, and weights by name."""

    schema: str = "polybench.trace-summary/1"
    file: str
    bytes: NaturalInt
    header: TraceHeader
    steps: dict[NaturalInt, StepRecord]
    gradients: dict[NaturalInt, NaturalInt]
    weights: dict[str, tuple[NaturalInt, ...]]
    dtypes: dict[str, str]
