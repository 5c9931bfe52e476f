"""`polybench peak`: peak compute and memory throughput of this machine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, NoReturn

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
from polybench.render import check_format, render
from polybench.schema.options import Study

if TYPE_CHECKING:
    from polybench.experiments.peak import PeakOutcome


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
    _execute(measure, options._replace(format=format))


def resume_peak_by_id(id: str, options: OutputOptions) -> NoReturn:
    """Measure these peaks again; print and exit."""
    from polybench.experiments.peak import resume_peak

    _execute(partial(resume_peak, id, anonymous=options.anonymous), options)


def _execute(measure: Callable[..., PeakOutcome], options: OutputOptions) -> NoReturn:
    from polybench.storage.store import Store, results_folder

    check_format(options.format)
    check_writable(options.output)
    store = Store(results_folder(options.results)) if options.save else None
    with interrupts.defer_signals():
        with progress_on_stderr(quiet=options.quiet, verbose=options.verbose) as progress:
            document, measured = measure(progress, store=store)
        # The cache keeps the host name, which is its key.
        text = render(anonymize_if_requested(document, options), options.format, width=width(options.output))
        hint = interrupted_hint(document.configurations)
        saved = store if measured else None
        print_and_exit(text, options, saved, f"saved as {', '.join(measured)}", peak_exit_code(document), hint=hint)
