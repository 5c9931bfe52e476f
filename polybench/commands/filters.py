"""The options that choose among saved studies."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.report.filter_texts import filters_of
from polybench.report.listed import Filters


def make_filters(
    engine: Annotated[
        str | None,
        typer.Option("--engine", help="torch: any variant; torch+compile: this one. Names may have * and ?."),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Of this network: lenet, catdog-*.")] = None,
    device: Annotated[str | None, typer.Option("--device", help="With a cell on it: cpu, cuda*.")] = None,
    host: Annotated[str | None, typer.Option("--host", help="Measured on this machine, by its name.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="From this date on: 2026-11-01 (UTC).")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Up to and with this date.")] = None,
    version: Annotated[
        list[str] | None,
        typer.Option("--version", help="NAME=NUMBER: torch=2.13 is 2.13.0 and 2.13.1, too; may be repeated."),
    ] = None,
) -> Filters:
    """What was given on the command line; raises BadInput for what is no date or no version."""
    given = {"engine": engine, "model": model, "device": device, "host": host, "since": since, "until": until}
    return filters_of(given, version or ())
