"""`polybench overhead`: fixed cost of a training step, and cost per input."""

from __future__ import annotations

from typing import Annotated

import typer

from polybench.cli.options import WORKLOAD_PANEL, TableFormat, parse_integers, with_options
from polybench.cli.output import OutputOptions
from polybench.cli.sweep import OUTPUT_FIELDS, SHARED_FIELDS, Resume, run_and_print_sweep
from polybench.errors import BadInput
from polybench.schema.options import Study


@with_options(*SHARED_FIELDS, "threads", *OUTPUT_FIELDS)
def overhead(
    study: Study,
    options: OutputOptions,
    quick: bool,
    batch_size: Annotated[
        str | None,
        typer.Option(
            help="Batch sizes, at least two.", show_default="1,2,4,8,16,32,64", rich_help_panel=WORKLOAD_PANEL
        ),
    ] = None,
    resume: Resume = False,
    format: TableFormat = "table",
) -> None:
    """Example: polybench overhead --engines torch,torch+compile,tf --processes 3"""
    from polybench.planning.grid import BATCH_SIZES, SweepSpec

    sizes = list(BATCH_SIZES) if batch_size is None else parse_integers(batch_size, "batch_size")
    if len(set(sizes)) < 2:
        raise BadInput(f"--batch-size {batch_size}: expected at least two batch sizes, such as 1,32")
    spec = SweepSpec(study.quick() if quick else study, {"batch_size": sizes}, "overhead")
    run_and_print_sweep(spec, options._replace(format=format), resume=resume)
