"""`polybench peak`: peak compute and memory throughput of this machine."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from polybench.cli.measured import measure_and_print
from polybench.cli.options import MEASUREMENT_PANEL, TableFormat, with_options
from polybench.cli.output import OutputOptions, own_arguments
from polybench.schema.options import Study


@with_options(
    "engines", "devices", "env", "model", "batch_size", "precision", "threads", "malloc", "pin_cpus", "seed",
    "quick", "budget", "wait_idle", "timeout", "output", "results", "save", "anonymous", "quiet", "verbose",
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

    argv, anonymous = own_arguments(), options.anonymous
    measure = partial(run_peak, study, argv=argv, anonymous=anonymous, quick=quick, remeasure=remeasure)
    measure_and_print(measure, options._replace(format=format))
