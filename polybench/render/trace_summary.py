"""The settings, steps and tensors of a recorded training."""

from __future__ import annotations

from polybench.render.table import DEFAULTS, Column, Records, Table, TableOptions, number_columns
from polybench.schema import units
from polybench.schema.trace import TraceSummary


def table(document: TraceSummary, _: TableOptions = DEFAULTS) -> Table:
    """Build a row per recorded step, below the settings and above the weights."""
    header = document.header
    versions = ", ".join(f"{name} {version}" for name, version in header.versions.items())
    settings = ", ".join(f"{name} {value}" for name, value in header.optimizer.items())
    return Table(
        title=[
            f"{document.file}: {header.framework} ({versions}), {units.format_bytes(document.bytes)}",
            f"optimizer: {header.optimizer_name or 'unknown'}{f' ({settings})' if settings else ''}",
        ],
        columns=[Column("step"), *number_columns("loss", "gradients", "time to record"), Column("batch")],
        rows=[
            [str(step), loss_text(loss), str(count), units.format_seconds(seconds), sha256[:12]]
            for step, loss, count, seconds, sha256 in _rows(document)
        ],
        notes=[
            f"{units.plural(len(document.weights), 'weight')}: "
            + ", ".join(
                f"{name} {'x'.join(map(str, shape)) or 'scalar'} {document.dtypes[name]}"
                for name, shape in document.weights.items()
            )
        ],
    )


def loss_text(loss: float | None) -> str:
    """Return the loss of a step; null is one that is not finite."""
    return "not finite" if loss is None else f"{loss:.7g}"


def records(document: TraceSummary, _: TableOptions) -> Records:
    """List a record per step."""
    return Records(["step", "loss", "gradients", "seconds", "batch_sha256"], list(_rows(document)))


def _rows(document: TraceSummary) -> list[tuple[int, float | None, int, float, str]]:
    return [
        (step, one.loss, document.gradients[step], one.seconds, one.batch_sha256)
        for step, one in document.steps.items()
    ]
