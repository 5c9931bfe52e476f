"""`polybench history`: step times of saved studies over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from polybench.cli.completion import saved
from polybench.cli.options import TableFormat, Tolerance, with_options
from polybench.cli.output import check_writable, width, write
from polybench.errors import BadInput
from polybench.render import render
from polybench.schema.analyses import HistoryDocument
from polybench.storage.summaries import Filters

if TYPE_CHECKING:
    from polybench.storage.store import Store


@with_options("output", "results")
def history(
    filters: Filters,
    tolerance: Tolerance = "2%",  # type: ignore[assignment]  # typer parses it
    dismiss: Annotated[
        str | None,
        typer.Option(
            "--dismiss",
            metavar="ID",
            help="Study whose change points are no longer reported: its ID, a unique prefix, or `last`.",
            autocompletion=saved("study"),
        ),
    ] = None,
    results: Path | None = None,
    output: Path | None = None,
    format: TableFormat = "table",
) -> None:
    """Show the step time of each configuration over saved studies, with change points and package versions.

    Example: polybench history --engine flux --model lenet
    """
    from polybench.analysis.history import build_history
    from polybench.storage.store import Store, load_dismissed, results_folder

    store = Store(results_folder(results))
    dismissed_study = None if dismiss is None else store.load(dismiss).id
    document = build_history(store.studies(filters), load_dismissed(store.folder), filters, tolerance)
    if dismissed_study is not None:
        _dismiss(store, document, dismissed_study)
    text = render(document, format, width=width(output))
    check_writable(output)
    write(text, output)


def _dismiss(store: Store, document: HistoryDocument, study: str) -> None:
    """Dismiss the document's change points at a study, in the store and in the document."""
    from polybench.storage.store import dismiss

    with_changes = [change.study for series in document.series for change in series.change_points]
    if study not in with_changes:
        expected = ", ".join(dict.fromkeys(with_changes)) or "none"
        raise BadInput(f"--dismiss {study}: no change point; studies with change points: {expected}")
    configurations = [
        series.configuration for series in document.series if study in {change.study for change in series.change_points}
    ]
    dismiss(store.folder, study, configurations)
    for series in document.series:
        series.change_points[:] = [
            msgspec.structs.replace(change, dismissed=change.dismissed or change.study == study)
            for change in series.change_points
        ]
