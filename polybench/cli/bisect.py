"""`polybench bisect`: finds the release or commit at which the step time changed."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from polybench.cli.live import progress_on_stderr
from polybench.cli.options import MEASUREMENT, WORKLOAD, TableFormat, with_options
from polybench.cli.output import OutputOptions, check_writable, echo, own_arguments, width, write
from polybench.cli.versions import UNUSED, CheckoutOption, PackageOption, make_source
from polybench.machine import interrupts
from polybench.render import render
from polybench.schema.options import Study


@with_options(
    *(name for name in WORKLOAD | MEASUREMENT if name not in (*UNUSED, "cold_starts")),
    "output", "results", "quiet", "verbose",
)  # fmt: skip
def bisect(
    start: Annotated[str, typer.Argument(metavar="START", help="Older release or commit, the start of the search.")],
    end: Annotated[
        str, typer.Argument(metavar="END", help="Newer release or commit, the end of the search: slower or faster.")
    ],
    study: Study,
    options: OutputOptions,
    package: PackageOption = None,
    checkout: CheckoutOption = None,
    max_pairs: Annotated[
        int | None,
        typer.Option(
            "--max-pairs", min=1, help="Maximum number of pairs.", show_default="1.5 log2(n) + 6 for n commits"
        ),
    ] = None,
    format: TableFormat = "table",
) -> None:
    """Installs versions in environments of their own, and measures each side by side with START. A wrong version is
    named in at most 2 % of all searches. The same command resumes an interrupted search.

    Example: polybench bisect 2.12.0 2.13.0 --package torch --engines torch
    """
    from polybench.experiments.bisect import run_bisect
    from polybench.storage.store import Store, results_folder

    source, study = make_source(study, package, checkout)
    check_writable(options.output)
    with interrupts.defer_signals(), progress_on_stderr(quiet=options.quiet, verbose=options.verbose) as progress:
        document = run_bisect(
            source, (start, end), study, progress,
            store=Store(results_folder(options.results)), max_pairs=max_pairs, argv=own_arguments(),
            report=partial(echo, err=True),
        )  # fmt: skip
    write(render(document, format, width=width(options.output)), options.output)
    if document.interrupted:
        echo("interrupted; resume with the same command", err=True)
    raise typer.Exit(130 if document.interrupted else 0 if document.version else 4)
