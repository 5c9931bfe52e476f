"""`polybench merge`: studies of one workload on several machines in one table."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.cli.completion import saved
from polybench.cli.options import TableFormat, parse_prices, with_options
from polybench.cli.output import OutputOptions, check_writable, width, write
from polybench.render import render


@with_options("output", "results")
def merge(
    studies: Annotated[
        list[str],
        typer.Argument(
            metavar="ID...", help="Studies: IDs, unique prefixes, or paths of logs.", autocompletion=saved("study")
        ),
    ],
    options: OutputOptions,
    baseline: Annotated[
        str | None,
        typer.Option(
            "--baseline",
            metavar="HOST:CONFIGURATION",
            help="Row that speed-ups refer to.",
            show_default="the baseline of the first study",
        ),
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            "--price",
            metavar="DEVICE=DOLLARS",
            help="Price in dollars per hour: --price HOST:cpu=0.24, or cpu=0.24 for all machines; cpu-16"
            " is for machines with 16 threads.",
        ),
    ] = None,
    format: TableFormat = "table",
) -> None:
    """Example: polybench merge here.jsonl there.jsonl --price here:cpu=0.24 --price there:cuda=3.06"""
    from polybench.analysis.merge import merge
    from polybench.storage.store import Store, results_folder

    prices = parse_prices(price or [])
    store = Store(results_folder(options.results))
    document = merge([store.load(name) for name in studies], prices, baseline, saved=store.summaries())
    check_writable(options.output)
    write(render(document, format, width=width(options.output)), options.output)
