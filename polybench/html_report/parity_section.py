"""Parity check of a study: status, largest errors and known deviations of each configuration."""

from __future__ import annotations

from typing import NamedTuple

from polybench.schema import units
from polybench.schema.parity import KnownDeviation, ParityCheck, PrecisionResult, TensorComparison
from polybench.schema.study import StudyDocument

_MAX_TENSORS = 12
"""Comparisons shown per configuration; the saved document contains all of them."""


class ErrorView(NamedTuple):
    """A relative error and its tolerance."""

    error: str
    tolerance: str
    passed: bool


class TensorView(NamedTuple):
    """Comparison of a tensor with the reference."""

    precision: str
    name: str
    kind: str
    step: int
    error: ErrorView


class ParityView(NamedTuple):
    """Parity check of a configuration.

    Attributes:
        errors: of loss, gradients and weights, in float64, then at the timed precision; None if not checked.
        largest_errors: comparisons with the largest errors relative to their tolerance.
        comparisons: number of all comparisons.
    """

    configuration: str
    status: str
    reason: str
    errors: list[ErrorView | None]
    largest_errors: list[TensorView]
    comparisons: int
    deviations: list[str]


def build_parity_views(study: StudyDocument) -> list[ParityView]:
    """Build a view for each configuration that was checked, or measured without a check."""
    return [
        _view(result.configuration, result.parity)
        for result in study.results
        if result.is_measured or result.parity.status != "skipped"
    ]


def _view(configuration: str, parity: ParityCheck) -> ParityView:
    largest = sorted(parity.tensors, key=_relative_to_tolerance, reverse=True)[:_MAX_TENSORS]
    return ParityView(
        configuration=configuration,
        status={"pass": "identical", "fail": "differs", "skipped": "not checked"}[parity.status],
        reason=parity.reason or "",
        errors=[*_errors(parity.float64), *_errors(parity.timed)],
        largest_errors=[_tensor(comparison) for comparison in largest],
        comparisons=len(parity.tensors),
        deviations=[_deviation(deviation) for deviation in parity.known_deviations],
    )


def _errors(result: PrecisionResult | None) -> list[ErrorView | None]:
    if result is None:
        return [None, None, None]
    errors = (result.max_loss_error, result.max_gradient_error, result.max_weight_error)
    kinds = ("loss", "gradient", "weight")
    return [
        _error(error, result.tolerance[kind]) if kind in result.tolerance else None
        for kind, error in zip(kinds, errors, strict=True)
    ]


def _error(error: float | None, tolerance: float) -> ErrorView:
    text = "not finite" if error is None else units.format_scientific(error)
    return ErrorView(text, f"{tolerance:g}", error is not None and error <= tolerance)


def _relative_to_tolerance(comparison: TensorComparison) -> float:
    """Divide the error by its tolerance; infinity for errors that are not finite."""
    error, tolerance = comparison.relative_error, comparison.tolerance
    if error is None:
        return float("inf")
    return error / tolerance if tolerance else error


def _tensor(comparison: TensorComparison) -> TensorView:
    precision = {"float64": "float64", "timed": "timed precision"}[comparison.part]
    error = _error(comparison.relative_error, comparison.tolerance)
    return TensorView(precision, comparison.name, comparison.kind, comparison.step, error)


def _deviation(deviation: KnownDeviation) -> str:
    error = units.format_scientific(deviation.error)
    return f"{deviation.tensor}: error {error}; {deviation.rule} ({deviation.source})"
