"""`polybench resume`: go on with a study or a sweep that was stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.commands.execute import execute_rest
from polybench.commands.fleet import execute_rest_of_fleet, refuse_to_explain
from polybench.commands.presentation import Presentation
from polybench.commands.series import execute_rest_of_series, refuse_options
from polybench.commands.signature import takes
from polybench.commands.terminal import echo


@takes(
    "strict",
    "columns",
    "published",
    "format",
    "output",
    "results",
    "explain",
    "anonymous",
    "quiet",
    "verbose",
)
def resume(
    study: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A study or sweep that was stopped: its ID, a unique prefix, or `last`."
        ),
    ],
    how: Presentation,
    strict: bool,
    discard: Annotated[
        bool,
        typer.Option(
            "--discard", help="Give it up: what it needs to go on is removed; what was saved of it stays."
        ),
    ] = False,
) -> None:
    """Go on with a study or sweep that was stopped, killed or broken off; what it had finished is kept.

    It goes on only on the same machine, with the same versions and data; `polybench list` shows what is not
    finished.

    Example: polybench resume last
    """
    from polybench.measuring.resumable import discard as discard_unfinished
    from polybench.measuring.resumable import find
    from polybench.report.saved_studies import Store, results_folder

    store = Store(results_folder(how.results))
    found = find(study, store)
    if discard:
        discard_unfinished(found, store)
        echo(f"{found.id} is given up: it cannot be resumed any more")
        return
    if found.kind == "fleet":
        refuse_to_explain(how, found.id)
        execute_rest_of_fleet(found.id, how, strict=strict)
    if found.kind == "study":
        execute_rest(found.id, how, strict=strict)
    given = {"--strict": strict, "--columns": how.columns, "--explain": how.explain}
    refuse_options(given, f"{found.id} is a sweep")
    execute_rest_of_series(found.id, how)
