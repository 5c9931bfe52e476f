"""`polybench layers`: step time by layer and operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
import typer

from polybench.cli.allocations import show_allocation_sites
from polybench.cli.completion import one_of
from polybench.cli.live import progress_on_stderr
from polybench.cli.options import (
    MEASUREMENT,
    OUTPUT_PANEL,
    WORKLOAD,
    WORKLOAD_PANEL,
    TableFormat,
    reject_given,
    with_options,
)
from polybench.cli.output import (
    OutputOptions,
    check_writable,
    echo,
    interrupted_hint,
    layers_exit_code,
    own_arguments,
    print_and_exit,
    width,
)
from polybench.errors import BadInput, lookup_or_suggest
from polybench.machine import interrupts
from polybench.render import check_format, render
from polybench.render.table import Sort
from polybench.schema.options import Study

if TYPE_CHECKING:
    from polybench.experiments.layers import LayersOutcome

_EXCLUDED = {
    "epochs", "accuracy", "target_accuracy", "target_loss", "metrics", "injected_delays", "recheck", "dry_run",
}  # fmt: skip
"""Options that do not apply: of a study, only the layers are measured."""
_ONLY_ALLOCATIONS = {"input", "loader_workers", "augment", "replicas", "top"}
"""Options that need --allocations."""
_ALLOCATIONS = {*WORKLOAD, "timeout", "allocations", "top", "format", "output", "anonymous", "quiet", "verbose"}
"""Options that have an effect with --allocations."""

SortOption = Annotated[
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
    sort: SortOption = "network",
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
    from polybench.experiments.layers import run_layers
    from polybench.render.layers import ORDERS
    from polybench.runner.prepare import new_header

    if allocations:
        reject_given(context, context.params.keys() - _ALLOCATIONS, "has no effect with --allocations: leave it out")
        show_allocation_sites(study, options, format, top)
    reject_given(context, _ONLY_ALLOCATIONS, "has no effect without --allocations: leave it out")
    study = _with_single_layer(study, layer, shape)
    measure = partial(
        run_layers,
        study.quick() if quick else study,
        header=new_header(own_arguments(), anonymous=options.anonymous),
        strict=strict,
        expand_blocks=expand_blocks,
        export_folder=export,
    )
    _execute(measure, options._replace(format=format), lookup_or_suggest(sort, ORDERS, "order"), export)


def resume_layers_by_id(id: str, options: OutputOptions) -> NoReturn:
    """Measure what these layers lack; print and exit."""
    from polybench.experiments.layers import resume_layers

    _execute(partial(resume_layers, id, anonymous=options.anonymous), options)


def _execute(
    measure: Callable[..., LayersOutcome], options: OutputOptions, order: Sort = "network", export: Path | None = None
) -> NoReturn:
    from polybench.storage.store import Store, results_folder

    check_format(options.format)
    check_writable(options.output)
    store = Store(results_folder(options.results)) if options.save else None
    with interrupts.defer_signals():
        with progress_on_stderr(quiet=options.quiet, verbose=options.verbose) as progress:
            document = measure(progress, store=store).document
        if export is not None and any(export.iterdir()) and not options.quiet:
            echo(f"wrote programs of the slowest operation to {export}", err=True)
        message = f"saved as {document.id}; polybench explain uses it"
        hint = interrupted_hint(document.configurations)
        text = render(document, options.format, width=width(options.output), sort=order)
        print_and_exit(text, options, store, message, layers_exit_code(document), hint=hint)


def _with_single_layer(study: Study, layer: str | None, shape: str | None) -> Study:
    """Replace the network with a single layer, if given."""
    from polybench.networks.single_layer import single_layer

    if layer is None:
        if shape is not None:
            raise BadInput("--shape needs a single layer: add --layer")
        return study
    return msgspec.structs.replace(study, model=single_layer(f"{layer} on {shape}" if shape else layer).name)
