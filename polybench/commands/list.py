"""`polybench list`: the saved studies."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from polybench.commands.options import TableOrJson
from polybench.commands.signature import takes


@takes("results")
def list_studies(results: Path | None = None, format: TableOrJson = "table") -> None:
    """List saved studies, oldest first; what cannot be read is shown as unreadable."""
    import msgspec

    from polybench.core.document.study import from_json
    from polybench.core.names import pick
    from polybench.report.saved_studies import Store, results_folder

    pick(format, {"table": None, "json": None}, "format")
    rows: list[dict[str, Any]] = []
    for path in Store(results_folder(results)).paths():
        try:
            study = from_json(path.read_bytes())
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            rows.append({"id": path.stem, "created": None, "unreadable": str(error)})
        else:
            settings = study.settings
            rows.append(
                {
                    "id": study.id,
                    "created": study.created,
                    "model": settings.model,
                    "dataset": settings.dataset,
                    "batch_size": settings.batch_size,
                    "cells": [result.cell for result in study.results],
                    "measured": sum(result.measured for result in study.results),
                }
            )
    typer.echo(msgspec.json.encode(rows).decode() if format == "json" else _table(rows))


def _table(rows: list[dict[str, Any]]) -> str:
    from tabulate import tabulate

    if not rows:
        return "no saved studies; polybench compare makes one"
    lines = [
        (row["id"], "unreadable", row["unreadable"])
        if "unreadable" in row
        else (
            row["id"],
            f"{row['model']}, {row['dataset']}, batch {row['batch_size']}",
            ", ".join(row["cells"]),
        )
        for row in rows
    ]
    return tabulate(lines, headers=["id", "workload", "cells"], maxcolwidths=[None, 40, 60])
