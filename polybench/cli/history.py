"""`polybench history`: step times of saved studies over time."""

from __future__ import annotations

from pathlib import Path

from polybench.cli.options import TableFormat, with_options
from polybench.cli.output import check_writable, width, write
from polybench.render import render
from polybench.storage.filters import Filters


@with_options("tolerance", "output", "results")
def history(
    filters: Filters,
    tolerance: float,
    results: Path | None = None,
    output: Path | None = None,
    format: TableFormat = "table",
) -> None:
    """Example: polybench history --engine flux --model lenet"""
    from polybench.analysis.history import build_history
    from polybench.storage.store import Store, results_folder

    store = Store(results_folder(results))
    document = build_history(store.studies(filters), filters, tolerance)
    text = render(document, format, width=width(output))
    check_writable(output)
    write(text, output)
