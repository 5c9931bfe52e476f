"""`polybench limit`: the most that this machine does."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from polybench.commands.live import progress_on_stderr
from polybench.commands.outcome import emit, ensure_writable, exit_code_of_limit
from polybench.commands.presentation import Presentation
from polybench.commands.signature import takes
from polybench.commands.sweep import Format
from polybench.core import interrupts
from polybench.core.names import pick
from polybench.core.spec import Study
from polybench.export import RECORD_FORMATS


@takes(
    "engines", "devices", "env", "model", "batch_size", "precision", "threads", "heap", "pin", "seed",
    "budget", "patience", "timeout", "output", "anonymous", "quiet", "verbose",
)  # fmt: skip
def limit(
    study: Study,
    how: Presentation,
    recheck: Annotated[
        bool, typer.Option("--recheck", help="Measure again, whatever is kept of this machine.")
    ] = False,
    format: Format = "table",
) -> None:
    """Measure this machine's roofs: the fastest product, the fastest of the network's convolutions, memory.

    They are kept, and from then on `compare` and `layers` say how much of the first is reached (% of roof).

    Example: polybench limit --engines torch,tf --threads 2
    """
    from polybench.export.limit import render
    from polybench.measuring.limit import run_limit
    from polybench.report.anonymous import anonymous

    pick(format, dict.fromkeys(RECORD_FORMATS), "format")
    ensure_writable(how.output)
    with interrupts.deferred():
        with progress_on_stderr(quiet=how.quiet, verbose=how.verbose) as progress:
            document = run_limit(study, progress, argv=sys.argv[1:], recheck=recheck)
        if how.anonymous:  # what is kept is found by the machine's name, and nobody else sees it
            document = anonymous(document)
        emit(render(document, format), how.output)
        raise typer.Exit(exit_code_of_limit(document))
