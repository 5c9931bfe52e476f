"""`polybench peak`: peak compute and memory throughput of this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.cli.live import progress_on_stderr
from polybench.cli.options import MEASUREMENT_PANEL, TableFormat, with_options
from polybench.cli.output import (
    OutputOptions,
    anonymize_if_requested,
    check_writable,
    interrupted_hint,
    own_arguments,
    peak_exit_code,
    print_and_exit,
    width,
)
from polybench.machine import interrupts
from polybench.render import render
from polybench.schema.options import Study


@with_options(
    "engines", "devices", "env", "model", "batch_size", "precision", "threads", "malloc", "pin_cpus", "seed",
    "quick", "budget", "wait_idle", "timeout", "output", "anonymous", "quiet", "verbose",
)  # fmt: skip
def peak(
    study: Study,
    options: OutputOptions,
    quick: bool,
    remeasure: Annotated[
        bool,
        typer.Option(
            "--remeasure",
            help="Measure again even if this machine's peaks are cached.",
            rich_help_panel=MEASUREMENT_PANEL,
        ),
    ] = False,
    format: TableFormat = "table",
) -> None:
    """The results are cached, except those of --quick: `compare` and `layers` then show which part of the peak they
    reach (% of peak).

    Example: polybench peak --engines torch,tf --threads 2
    """
    from polybench.experiments.peak import run_peak

    check_writable(options.output)
    with interrupts.defer_signals():
        with progress_on_stderr(quiet=options.quiet, verbose=options.verbose) as progress:
            document = run_peak(study, progress, argv=own_arguments(), quick=quick, remeasure=remeasure)
        # The cache keeps the host name, which is its key.
        text = render(anonymize_if_requested(document, options), format, width=width(options.output))
        hint = interrupted_hint(document.configurations)
        print_and_exit(text, options, None, "", peak_exit_code(document), hint=hint)
