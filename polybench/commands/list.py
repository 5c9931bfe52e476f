"""`polybench list`: the saved studies."""

from __future__ import annotations

from pathlib import Path

from polybench.commands.options import TableOrJson
from polybench.commands.rows import Rows, print_rows
from polybench.commands.signature import takes


@takes("results")
def list_studies(results: Path | None = None, format: TableOrJson = "table") -> None:
    """List saved studies, oldest first; what cannot be read is shown as unreadable."""
    import msgspec

    from polybench.core.document.study import from_json
    from polybench.report.saved_studies import Store, results_folder

    rows: Rows = []
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
                    "finished": study.finished,
                }
            )
    print_rows(rows, format, _table)


def _table(rows: Rows) -> str:
    from tabulate import tabulate

    if not rows:
        return "no saved studies; polybench compare makes one"
    lines = [
        (row["id"], "unreadable", row["unreadable"])
        if "unreadable" in row
        else (
            row["id"] + (" (not finished)" if row["finished"] is False else ""),
            f"{row['model']}, {row['dataset']}, batch {row['batch_size']}",
            ", ".join(row["cells"]),
        )
        for row in rows
    ]
    return tabulate(lines, headers=["id", "workload", "cells"], maxcolwidths=[None, 40, 60])
