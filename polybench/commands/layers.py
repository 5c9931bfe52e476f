"""`polybench layers`: where the time of a step goes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from polybench.commands.live import progress_on_stderr
from polybench.commands.options import HOW, WHAT
from polybench.commands.outcome import end, ensure_writable, exit_code_of_layers
from polybench.commands.presentation import Presentation
from polybench.commands.signature import takes
from polybench.commands.sweep import Format
from polybench.commands.terminal import echo
from polybench.core import interrupts
from polybench.core.errors import BadInput
from polybench.core.names import pick
from polybench.core.spec import Study
from polybench.export import RECORD_FORMATS

_NOT_HERE = {
    "input", "workers", "augment", "epochs", "accuracy", "until", "metrics", "handicaps", "recheck",
    "replicas", "dry_run",
}  # fmt: skip
"""Layers are timed with preloaded batches, and nothing else is."""


@takes(
    *(name for name in (*WHAT, *HOW) if name not in _NOT_HERE),
    "baseline", "output", "results", "save", "anonymous", "quiet", "verbose",
)  # fmt: skip
def layers(
    study: Study,
    how: Presentation,
    quick: bool,
    strict: bool,
    sort: Annotated[
        str, typer.Option("--sort", help="network, or lost: by what is lost against the baseline.")
    ] = "network",
    inside: Annotated[
        bool, typer.Option("--inside", help="Show every layer inside of residual blocks.")
    ] = False,
    layer: Annotated[
        str | None,
        typer.Option("--layer", help='A layer by itself: "conv 3x3 64->64 pad 1 relu"; with --input.'),
    ] = None,
    input: Annotated[
        str | None, typer.Option("--input", help="Height and width of what goes into that layer: 56x56.")
    ] = None,
    script: Annotated[
        Path | None,
        typer.Option("--script", help="A folder for plain programs that show the part that loses most."),
    ] = None,
    format: Format = "table",
) -> None:
    """Time every layer alone: forward, gradient of the data, of the weights; engines side by side.

    Each layer is given what it is given in the network, the same for all engines. What a whole step takes
    beyond its parts is said as well.

    Example: polybench layers --engines torch,tf --sort lost
    """
    from polybench.export.layers import render
    from polybench.export.layers_rows import ORDERS
    from polybench.measuring.layers import run_layers
    from polybench.measuring.study import new_context
    from polybench.report.saved_studies import Store, results_folder

    study, only = _of_one_layer(study, layer, input)
    pick(format, dict.fromkeys(RECORD_FORMATS), "format")
    order = pick(sort, ORDERS, "order")
    ensure_writable(how.output)
    store = Store(results_folder(how.results)) if how.save else None
    with interrupts.deferred():
        with progress_on_stderr(quiet=how.quiet, verbose=how.verbose) as progress:
            document = run_layers(
                study.quick() if quick else study,
                progress,
                store=store,
                context=new_context(sys.argv[1:], anonymous=how.anonymous),
                strict=strict,
                inside=inside,
                only=only,
                script=script,
            )
        if script is not None and any(script.iterdir()) and not how.quiet:
            echo(f"programs that show the part that loses most: {script}", err=True)
        said = f"saved as {document.id}; polybench explain finds it"
        end(render(document, format, order), how, store, said, exit_code_of_layers(document))


def _of_one_layer(study: Study, layer: str | None, input: str | None) -> tuple[Study, str | None]:
    """A study of the layer, and the name of its row; the study as it is where no layer is given."""
    from polybench.models.single_layer import row_of, single_layer

    if layer is None:
        if input is not None:
            raise BadInput("--input is for a layer by itself; add --layer")
        return study, None
    name = f"{layer} on {input}" if input else layer
    return msgspec.structs.replace(study, model=name), row_of(single_layer(name))
