"""Options that select saved studies."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.storage.filter_parsing import filters_from_text
from polybench.storage.study_summary import Filters


def parse_filters(
    engine: Annotated[
        str | None,
        typer.Option(
            "--engine",
            help="Engine: torch selects any variant, torch+compile this one. Wildcards: * and ?.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option("--model", help="Network: lenet or catdog-*, for example.")] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="Device of a configuration: cpu or cuda*, for example.")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", help="Host name of the machine.")] = None,
    since: Annotated[str | None, typer.Option("--since", help="First date: 2026-11-01 (UTC).")] = None,
    until: Annotated[str | None, typer.Option("--until", help="Last date, inclusive: 2026-11-30 (UTC).")] = None,
    version: Annotated[
        list[str] | None,
        typer.Option("--version", help="Version of a package: torch=2.13 selects 2.13.0 and 2.13.1. May be repeated."),
    ] = None,
) -> Filters:
    """Parse the filters; raise BadInput for an invalid date or version."""
    given = {"engine": engine, "model": model, "device": device, "host": host, "since": since, "until": until}
    return filters_from_text(given, version or ())
