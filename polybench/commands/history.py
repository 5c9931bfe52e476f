"""`polybench history`: saved studies over time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
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
        typer.Option(
            "--acknowledge",
            metavar="ID",
            help="Tell the steps at this study no more: its ID, a unique prefix of it, or `last`.",
        ),
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
    store = Store(results_folder(results))
    begun = None if acknowledge is None else store.load(acknowledge).id
    found = over_time(store.studies(wanted), acknowledged(store.folder), wanted, tolerance)
    if begun is not None:
        _acknowledge(store, found, begun)
    text = render(found, format)
    ensure_writable(output)
    emit(text, output)


def _acknowledge(store: Store, found: HistoryDocument, study: str) -> None:
    """All steps that are shown and begin at this study: now, and whenever they are shown again."""
    from polybench.report.acknowledged import acknowledge

    begun = [step.study for series in found.series for step in series.steps]
    if study not in begun:
        known = ", ".join(dict.fromkeys(begun)) or "there is none"
        raise BadInput(f"--acknowledge: no step begins at {study}; a step begins at: {known}")
    cells = [series.cell for series in found.series if study in {step.study for step in series.steps}]
    file = next(one.file for one in store.listed() if one.id == study)
    acknowledge(store.folder, study, file, cells)
    for series in found.series:
        series.steps[:] = [
            msgspec.structs.replace(step, acknowledged=step.acknowledged or step.study == study)
            for step in series.steps
        ]
