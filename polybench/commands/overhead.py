"""`polybench overhead`: what a step costs that has nothing to compute."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from polybench.commands.outcome import end
from polybench.commands.presentation import Presentation
from polybench.commands.signature import takes
from polybench.commands.sweep import OUT, SHARED, Format, exit_code_of_all, run_points
from polybench.commands.texts import parse_integers
from polybench.core.errors import BadInput
from polybench.core.spec import Study


@takes(*SHARED, "threads", *(name for name in OUT if name != "format"))
def overhead(
    study: Study,
    how: Presentation,
    batch_size: Annotated[
        str | None, typer.Option(help="At least two.", show_default="1,2,4,8,16,32,64")
    ] = None,
    format: Format = "table",
) -> None:
    """Fit the fixed cost of a step and the cost of a sample over batch sizes; --budget is for all together.

    Example: polybench overhead --engines torch,torch+compile,tf --processes 3
    """
    from polybench.export.overhead import render
    from polybench.planning.grid import BATCH_SIZES, points
    from polybench.report.overhead import summarize

    sizes = list(BATCH_SIZES) if batch_size is None else parse_integers(batch_size, "batch_size")
    if len(set(sizes)) < 2:
        raise BadInput(f"--batch-size {batch_size}: a line needs two batch sizes")
    finished, store = run_points(points(study, {"batch_size": sizes}), how, format)
    documents = {one.point.values["batch_size"]: one.document for one in finished}
    text = render(summarize(documents, sys.argv[1:]), format)
    end(text, how, store, "each batch size is saved as a study", exit_code_of_all(finished))
