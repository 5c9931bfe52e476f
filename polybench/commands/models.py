"""`polybench models`: what `--model` takes."""

from __future__ import annotations

from polybench.commands.options import TableOrJson
from polybench.commands.rows import Rows, print_rows


def models(format: TableOrJson = "table") -> None:
    """List the networks: parameters, multiply-adds of a training step, and the training declared for them."""
    from polybench.core.arithmetic import training_multiply_adds
    from polybench.models import MODELS

    rows: Rows = [
        {
            "model": model.name,
            "summary": model.summary,
            "input_shape": model.input_shape,
            "classes": model.classes,
            "parameters": model.parameters(),
            "training_multiply_adds": training_multiply_adds(model),
            "batch_size": model.batch_size,
            "optimizer": model.optimizer,
        }
        for model in MODELS.values()
    ]
    print_rows(rows, format, _table)


def _table(rows: Rows) -> str:
    from tabulate import tabulate

    from polybench.core import units
    from polybench.models.catdog import DEPTHS

    lines = [
        (
            row["model"],
            row["summary"],
            f"{row['parameters']:,}",
            f"{units.number(row['training_multiply_adds'] / 1e6)} M",
            row["batch_size"],
            f"{row['optimizer'].name} {row['optimizer'].learning_rate:g}",
        )
        for row in rows
    ]
    header = ["model", "what it is", "parameters", "multiply-adds\nan image", "batch", "optimizer"]
    table = tabulate(
        lines,
        headers=header,
        maxcolwidths=[None, 40, None, None, None, None],
        colalign=["left", "left", "right", "right", "right", "left"],
        disable_numparse=True,
    )
    return f"{table}\n\ncatdog-2 is the shallowest: catdog-N has N convolutions, {DEPTHS[0]} to {DEPTHS[-1]}"
