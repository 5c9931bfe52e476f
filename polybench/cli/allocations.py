"""`polybench layers --allocations`: allocation sites of each engine."""

from __future__ import annotations

from typing import NoReturn

import typer

from polybench.cli.live import progress_on_stderr
from polybench.cli.output import (
    OutputOptions,
    allocations_exit_code,
    anonymize_if_requested,
    check_writable,
    own_arguments,
    width,
    write,
)
from polybench.machine import interrupts
from polybench.render import render
from polybench.schema.options import Study


def show_allocation_sites(study: Study, options: OutputOptions, format: str, top: int) -> NoReturn:
    """Profile the allocations of a step, print the first `top` sites of each configuration, and exit."""
    from polybench.experiments.allocation_sites import find_allocation_sites

    check_writable(options.output)
    with interrupts.defer_signals():
        with progress_on_stderr(quiet=options.quiet, verbose=options.verbose) as progress:
            document = find_allocation_sites(study, progress, argv=own_arguments())
        write(
            render(anonymize_if_requested(document, options), format, width=width(options.output), top=top),
            options.output,
        )
        raise typer.Exit(allocations_exit_code(document))
