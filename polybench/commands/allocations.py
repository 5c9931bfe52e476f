"""`polybench allocations`: who allocates."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from polybench.commands.live import progress_on_stderr
from polybench.commands.options import WHAT
from polybench.commands.outcome import emit, ensure_writable
from polybench.commands.presentation import Presentation
from polybench.commands.signature import takes
from polybench.core import interrupts
from polybench.core.document.places import AllocationsDocument
from polybench.core.names import pick
from polybench.core.spec import Study


@takes(*WHAT, "timeout", "format", "output", "anonymous", "quiet", "verbose")
def allocations(
    study: Study,
    how: Presentation,
    top: Annotated[
        int, typer.Option("--top", min=1, help="Places of each cell; csv and json have all.")
    ] = 10,
) -> None:
    """Show which operators or functions allocate, and how much of it a step could do without; time nothing.

    Example: polybench allocations --engines torch,tf --top 5
    """
    from polybench.export.places import FORMATS
    from polybench.measuring.places import find_places
    from polybench.report.anonymous import anonymous

    render = pick(how.format, FORMATS, "format")
    ensure_writable(how.output)
    with interrupts.deferred():
        with progress_on_stderr(quiet=how.quiet, verbose=how.verbose) as progress:
            document = find_places(study, progress, argv=sys.argv[1:])
        if how.anonymous:
            document = anonymous(document)
        emit(render(document, top), how.output)
        raise typer.Exit(_exit_code(document))


def _exit_code(document: AllocationsDocument) -> int:
    states = {engine.status for engine in document.engines}
    for status, code in (("interrupted", 130), ("failed", 1)):
        if status in states:
            return code
    return 0 if any(engine.source is not None for engine in document.engines) else 4
