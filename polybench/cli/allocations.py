"""`polybench allocations`: allocation sites of each engine."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from polybench.cli.live import progress_on_stderr
from polybench.cli.options import OUTPUT_PANEL, WORKLOAD, TableFormat, with_options
from polybench.cli.output import (
    OutputOptions,
    allocations_exit_code,
    anonymize_if_requested,
    check_writable,
    width,
    write,
)
from polybench.machine import interrupts
from polybench.render import render
from polybench.schema.options import Study


@with_options(*WORKLOAD, "timeout", "output", "anonymous", "quiet", "verbose")
def allocations(
    study: Study,
    options: OutputOptions,
    top: Annotated[
        int,
        typer.Option(
            "--top",
            min=1,
            help="Allocation sites per configuration; csv and json have all.",
            rich_help_panel=OUTPUT_PANEL,
        ),
    ] = 10,
    format: TableFormat = "table",
) -> None:
    """Show which operators or functions allocate in a step, and which allocations are avoidable.

    Example: polybench allocations --engines torch,tf --top 5
    """
    from polybench.runner.allocations import find_allocation_sites

    check_writable(options.output)
    with interrupts.defer_signals():
        with progress_on_stderr(quiet=options.quiet, verbose=options.verbose) as progress:
            document = find_allocation_sites(study, progress, argv=sys.argv[1:])
        write(
            render(anonymize_if_requested(document, options), format, width=width(options.output), top=top),
            options.output,
        )
        raise typer.Exit(allocations_exit_code(document))
