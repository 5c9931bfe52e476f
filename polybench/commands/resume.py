"""`polybench resume`: go on with a study that was stopped."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.commands.execute import execute_rest
from polybench.commands.presentation import Presentation
from polybench.commands.signature import takes


@takes("columns", "published", "format", "output", "results", "explain", "quiet", "verbose")
def resume(
    study: Annotated[
        str,
        typer.Argument(metavar="ID", help="A study that was stopped: its ID, a unique prefix, or `last`."),
    ],
    how: Presentation,
) -> None:
    """Go on with a study that was stopped, killed or broken off; what it had finished is kept.

    It goes on only on the same machine, with the same versions and data; `polybench list` shows what is not
    finished.

    Example: polybench resume last
    """
    execute_rest(study, how)
