"""The identity check of a study for a page: each cell's verdict, its worst errors, and what is declared."""

from __future__ import annotations

from typing import NamedTuple

from polybench.core import units
from polybench.core.document.identity import Deviation, Parity, ParityPart, TensorError
from polybench.core.document.study import StudyDocument

_SHOWN = 12
"""Of the comparisons of a cell; all are in the saved document."""


class Error(NamedTuple):
    """The worst of a kind, and what it may be at most."""

    error: str
    allowed: str
    passed: bool


class Tensor(NamedTuple):
    """One comparison."""

    part: str
    name: str
    kind: str
    step: int
    error: Error


class Proof(NamedTuple):
    """The check of one cell.

    Attributes:
        errors: of loss, gradients and weights, in float64, then as timed; None where not checked.
        nearest: the comparisons that came nearest to what is allowed, or passed it.
        compared: how many there are.
    """

    cell: str
    status: str
    reason: str
    errors: list[Error | None]
    nearest: list[Tensor]
    compared: int
    deviations: list[str]


def proofs_of(study: StudyDocument) -> list[Proof]:
    """One for each cell that was checked, or was measured without a check."""
    return [
        _proof(result.cell, result.parity)
        for result in study.results
        if result.measured or result.parity.status != "skipped"
    ]


def _proof(cell: str, parity: Parity) -> Proof:
    nearest = sorted(parity.tensors, key=_nearness, reverse=True)[:_SHOWN]
    return Proof(
        cell=cell,
        status={"pass": "identical", "fail": "differs", "skipped": "not checked"}[parity.status],
        reason=parity.reason or "",
        errors=[*_errors(parity.algorithm), *_errors(parity.timed)],
        nearest=[_tensor(one) for one in nearest],
        compared=len(parity.tensors),
        deviations=[_deviation(one) for one in parity.deviations],
    )


def _errors(part: ParityPart | None) -> list[Error | None]:
    if part is None:
        return [None, None, None]
    found = (part.max_loss_error, part.max_gradient_error, part.max_weight_error)
    kinds = ("loss", "gradient", "weight")
    return [
        _error(error, part.tolerance[kind]) if kind in part.tolerance else None
        for kind, error in zip(kinds, found, strict=True)
    ]


def _error(error: float | None, allowed: float) -> Error:
    text = "not finite" if error is None else units.scientific(error)
    return Error(text, f"{allowed:g}", error is not None and error <= allowed)


def _nearness(tensor: TensorError) -> float:
    """Error over what is allowed; what is not finite is beyond all."""
    if tensor.relative_error is None:
        return float("inf")
    return tensor.relative_error / tensor.tolerance if tensor.tolerance else tensor.relative_error


def _tensor(one: TensorError) -> Tensor:
    part = {"algorithm": "float64", "timed": "as timed"}[one.part]
    return Tensor(part, one.name, one.kind, one.step, _error(one.relative_error, one.tolerance))


def _deviation(one: Deviation) -> str:
    return f"{one.tensor}: {units.scientific(one.error)} from exact; {one.what} ({one.source})"
