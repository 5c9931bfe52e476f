"""Two recorded trainings: the verdict, causes, and the errors of each step; and what one trace contains."""

from __future__ import annotations

from collections.abc import Iterator
from typing import get_args

from polybench.render.table import DEFAULTS, Column, Records, Table, TableOptions, number_columns
from polybench.schema.trace import DifferenceKind, StepErrors, TraceDiffDocument

_KINDS = get_args(DifferenceKind)


def table(document: TraceDiffDocument, _: TableOptions = DEFAULTS) -> Table:
    """Build a row of relative errors per step, below the verdict and above the causes."""
    frameworks = dict(zip("AB", document.frameworks, strict=True))
    files = {"A": document.a, "B": document.b}
    return Table(
        title=[*(f"{name}: {files[name]} ({frameworks[name]})" for name in "AB")],
        columns=[Column("step"), *number_columns("weights", "batch", "loss", "gradients", "statistics", "update")],
        rows=[[str(step.step), *(_error(value) for value in _values(step))] for step in document.steps],
        notes=list(_notes(document)),
        summary=[document.verdict],
    )


def records(document: TraceDiffDocument, _: TableOptions) -> Records:
    """List a record per step."""
    return Records(["step", *_KINDS], [[step.step, *_values(step)] for step in document.steps])


def _values(step: StepErrors) -> list[float | None]:
    return [getattr(step, kind) for kind in _KINDS]


def _error(value: float | None) -> str:
    return "" if value is None else f"{value:.1e}" if value else "0"


def _notes(document: TraceDiffDocument) -> Iterator[str]:
    yield "relative errors, norm(A - B) / norm(A); weights are those before the step"
    for cause in document.causes:
        yield f"{cause.cause}: {cause.evidence}; remaining error {cause.remaining_error:.1e}"
    if document.first_difference is not None and document.excluded:
        yield f"tried and excluded: {', '.join(document.excluded)}"
    if document.first_difference is not None and document.not_tried:
        yield f"not tried: {', '.join(document.not_tried)}"
    if document.not_compared:
        yield f"not compared: {'; '.join(document.not_compared)}"
    yield from document.dtypes
    if moved := [f"{a} is {b} ({layout})" for a, b, layout in document.pairs if layout]:
        yield f"layouts: {'; '.join(moved)}"
    yield from document.warnings
