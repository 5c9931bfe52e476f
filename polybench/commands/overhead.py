"""`polybench overhead`: what a step costs that has nothing to compute."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.commands.presentation import Presentation
from polybench.commands.series import execute_series
from polybench.commands.signature import takes
from polybench.commands.sweep import OUT, SHARED, Format, Resume
from polybench.commands.texts import parse_integers
from polybench.core.errors import BadInput
from polybench.core.spec import Study


@takes(*SHARED, "threads", *OUT)
def overhead(
    study: Study,
    how: Presentation,
    batch_size: Annotated[
        str | None, typer.Option(help="At least two.", show_default="1,2,4,8,16,32,64")
    ] = None,
    resume: Resume = False,
    format: Format = "table",
) -> None:
    """Fit the fixed cost of a step and the cost of a sample over batch sizes; --budget is for all together.

    Example: polybench overhead --engines torch,torch+compile,tf --processes 3
    """
    from polybench.measuring.sweep_checkpoint import Series
    from polybench.planning.grid import BATCH_SIZES

    sizes = list(BATCH_SIZES) if batch_size is None else parse_integers(batch_size, "batch_size")
    if len(set(sizes)) < 2:
        raise BadInput(f"--batch-size {batch_size}: a line needs two batch sizes")
    execute_series(
        Series(study, {"batch_size": sizes}, "overhead"), how._replace(format=format), resume=resume
    )
