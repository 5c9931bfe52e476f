"""`polybench layers`: step time by layer and operation."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from polybench.cli.completion import one_of
from polybench.cli.measured import measure_and_print
from polybench.cli.options import (
    MEASUREMENT,
    OUTPUT_PANEL,
    WORKLOAD,
    WORKLOAD_PANEL,
    TableFormat,
    reject_given,
    with_options,
)
from polybench.cli.output import OutputOptions, own_arguments
from polybench.errors import BadInput, lookup_or_suggest
from polybench.schema.options import Study

_EXCLUDED = {
    "epochs", "accuracy", "target_accuracy", "target_loss", "metrics", "injected_delays", "recheck", "dry_run",
    "cold_starts",
}  # fmt: skip
"""Options that do not apply: of a study, only the layers are measured."""
_ONLY_ALLOCATIONS = {"input", "loader_workers", "augment", "replicas", "top"}
"""Options that need --allocations."""
_ALLOCATIONS = {
    *WORKLOAD, "timeout", "allocations", "top", "format", "output", "results", "save", "anonymous", "quiet", "verbose",
}  # fmt: skip
"""Options that have an effect with --allocations."""

Sort = Annotated[
    str,
    typer.Option(
        "--sort",
        help="Order of the rows. network: order of the layers; slowdown: time lost to the baseline.",
        autocompletion=one_of(("network", "slowdown")),
        rich_help_panel=OUTPUT_PANEL,
    ),
]
ExpandBlocks = Annotated[
    bool, typer.Option("--expand-blocks", help="Show every layer inside residual blocks.", rich_help_panel=OUTPUT_PANEL)
]
SingleLayer = Annotated[
    str | None,
    typer.Option(
        "--layer",
        help='Single layer, with --shape, instead of a network: "conv 64->64 3x3 pad 1 relu",'
        ' "conv 64->64 3x3 depthwise", "attention 8 heads 512 causal".',
        rich_help_panel=WORKLOAD_PANEL,
    ),
]
InputShape = Annotated[
    str | None,
    typer.Option(
        "--shape",
        help="Input of the single layer: height and width in pixels, 56x56, or positions of a sequence, 256.",
        rich_help_panel=WORKLOAD_PANEL,
    ),
]
ShowAllocations = Annotated[
    bool,
    typer.Option(
        "--allocations",
        help="Show the allocation sites of a step instead of times, and which allocations are avoidable.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
Top = Annotated[
    int,
    typer.Option(
        "--top",
        min=1,
        help="Sites per configuration with --allocations; csv and json have all.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]
ExportFolder = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="DIR",
        help="Folder to write plain programs of the slowest operation to.",
        rich_help_panel=OUTPUT_PANEL,
    ),
]


@with_options(
    *(name for name in (*WORKLOAD, *MEASUREMENT) if name not in _EXCLUDED),
    "baseline", "output", "results", "save", "anonymous", "quiet", "verbose",
)  # fmt: skip
def layers(
    context: typer.Context,
    study: Study,
    options: OutputOptions,
    quick: bool,
    strict: bool,
    sort: Sort = "network",
    expand_blocks: ExpandBlocks = False,
    layer: SingleLayer = None,
    shape: InputShape = None,
    allocations: ShowAllocations = False,
    top: Top = 10,
    export: ExportFolder = None,
    format: TableFormat = "table",
) -> None:
    """Every engine gets the same input for a layer as in the network. The table ends with both passes and the whole
    step. With --allocations, each configuration has the operators or functions that allocate instead.

    Example: polybench layers --engines torch,tf --sort slowdown
    """
    from polybench.experiments.allocation_sites import find_allocation_sites
    from polybench.experiments.layers import run_layers
    from polybench.render.layers import ORDERS
    from polybench.runner.prepare import new_header

    options = options._replace(format=format)
    header = new_header(own_arguments(), anonymous=options.anonymous)
    if allocations:
        reject_given(context, context.params.keys() - _ALLOCATIONS, "has no effect with --allocations: leave it out")
        measure_and_print(partial(find_allocation_sites, study, header=header), options, top=top)
    reject_given(context, _ONLY_ALLOCATIONS, "has no effect without --allocations: leave it out")
    study = _with_single_layer(study, layer, shape)
    measure = partial(
        run_layers,
        study.quick() if quick else study,
        header=header,
        strict=strict,
        expand_blocks=expand_blocks,
        export_folder=export,
    )
    measure_and_print(measure, options, sort=lookup_or_suggest(sort, ORDERS, "order"))


def _with_single_layer(study: Study, layer: str | None, shape: str | None) -> Study:
    """Replace the network with a single layer, if given."""
    from polybench.networks.single_layer import single_layer

    if layer is None:
        if shape is not None:
            raise BadInput("--shape needs a single layer: add --layer")
        return study
    return msgspec.structs.replace(study, model=single_layer(f"{layer} on {shape}" if shape else layer).name)
