"""`polybench history`: saved studies over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polybench.commands.options import TableOrJson
from polybench.commands.outcome import emit, ensure_writable
from polybench.commands.signature import takes
from polybench.commands.texts import parse_fraction
from polybench.core.document.history import HistoryDocument
from polybench.core.errors import BadInput
from polybench.core.names import pick
from polybench.report.listed import Filters

if TYPE_CHECKING:
    from polybench.report.saved_studies import Store


@takes("output", "results")
def history(
    wanted: Filters,
    tolerance: Annotated[
        float,
        typer.Option(
            "--tolerance", help="A step up to this is none.", parser=parse_fraction, metavar="PERCENT"
        ),
    ] = "2%",  # type: ignore[assignment]  # typer parses it
    acknowledge: Annotated[
        str | None,
        typer.Option("--acknowledge", metavar="ID", help="Tell the steps at this study no more."),
    ] = None,
    results: Path | None = None,
    output: Path | None = None,
    format: TableOrJson = "table",
) -> None:
    """Show each cell of saved studies over time, with the steps of its step time and the versions.

    Example: polybench history --engine flux --model lenet
    """
    from polybench.export.history import render
    from polybench.report.acknowledged import acknowledged
    from polybench.report.history import history as over_time
    from polybench.report.saved_studies import Store, results_folder

    pick(format, {"table": None, "json": None}, "format")
    ensure_writable(output)
    store = Store(results_folder(results))
    found = over_time(store.studies(wanted), acknowledged(store.folder), wanted, tolerance)
    if acknowledge is not None:
        _acknowledge(store, found, acknowledge)
        found = over_time(store.studies(wanted), acknowledged(store.folder), wanted, tolerance)
    emit(render(found, format), output)


def _acknowledge(store: Store, found: HistoryDocument, name: str) -> None:
    """All steps that are shown and begin at this study."""
    from polybench.report.acknowledged import acknowledge

    begun: dict[str, list[str]] = {}
    for series in found.series:
        for step in series.steps:
            begun.setdefault(step.study, []).append(series.cell)
    matches = [study for study in begun if study == name] or [s for s in begun if s.startswith(name)]
    if len(matches) != 1:
        known = ", ".join(begun) or "there is none"
        raise BadInput(f"--acknowledge {name!r}: a step begins at: {known}")
    files = [study.file for study in store.listed() if study.id == matches[0]]
    acknowledge(store.folder, matches[0], files[0], begun[matches[0]])
