"""The report of `polybench import`: each layer and where it comes from, and the proof."""

from __future__ import annotations

from polybench.render.table import DEFAULTS, Records, Table, TableOptions, text_columns
from polybench.schema.imported import ImportDocument

_FIELDS = ["layer", "type", "operation", "place"]


def table(document: ImportDocument, _: TableOptions = DEFAULTS) -> Table:
    """Build a row per layer, in the order of the program."""
    versions = ", ".join(f"{name} {version}" for name, version in document.versions.items())
    return Table(
        title=[
            f"{document.program} ({versions}) is {document.model}: {document.parameters:,} parameters",
            _proof(document),
        ],
        columns=text_columns("layer", "type", "from", "place"),
        rows=[[one.name, one.type, one.operation, one.place] for one in document.layers],
        notes=document.notes + document.proof.omitted,
    )


def _proof(document: ImportDocument) -> str:
    proof = document.proof
    if proof.failure:
        return f"not the same: {proof.failure}"
    errors = proof.errors
    largest = max(
        error or 0.0
        for error in (
            errors.max_loss_error,
            errors.max_gradient_error,
            errors.max_weight_error,
            errors.max_logits_error,
        )
    )
    sizes = " and ".join(map(str, proof.batch_sizes))
    return (
        f"identical: {proof.comparisons} comparisons of {proof.steps} float64 steps with batches of {sizes}, in"
        f" training and evaluation, largest error {largest:.1g} (tolerance {errors.tolerance['gradient']:g})"
    )


def records(document: ImportDocument, _: TableOptions) -> Records:
    """List a record per layer."""
    return Records(_FIELDS, [(one.name, one.type, one.operation, one.place) for one in document.layers])
