"""`polybench merge`: one workload on several machines."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.commands.outcome import emit, ensure_writable
from polybench.commands.presentation import Presentation
from polybench.commands.signature import takes
from polybench.commands.texts import parse_pairs
from polybench.core.names import pick
from polybench.export import RECORD_FORMATS


@takes("output", "results")
def merge(
    studies: Annotated[
        list[str],
        typer.Argument(metavar="ID...", help="IDs, unique prefixes of them, or paths of documents."),
    ],
    how: Presentation,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="HOST:CELL",
            help="The row that others are compared with.",
            show_default="that of the first study",
        ),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            "--price",
            help="Dollars an hour: --price HOST:cpu=0.24, or cpu=0.24 for all; cpu-16 with so many threads.",
        ),
    ] = None,
    format: Annotated[str, typer.Option("--format", help=f"{', '.join(RECORD_FORMATS)}.")] = "table",
) -> None:
    """Put studies of one workload on several machines into one table; nothing is measured.

    Example: polybench merge here.json there.json --price here:cpu=0.24 --price there:cuda=3.06
    """
    from polybench.export.merge import render
    from polybench.report.merge import merge as merged
    from polybench.report.saved_studies import Store, results_folder

    pick(format, dict.fromkeys(RECORD_FORMATS), "format")
    prices = parse_pairs(price or [], "--price")
    store = Store(results_folder(how.results))
    document = merged([store.load(name) for name in studies], prices, baseline)
    ensure_writable(how.output)
    emit(render(document, format), how.output)
