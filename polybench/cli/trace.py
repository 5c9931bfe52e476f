"""`polybench trace`: what a recorded training contains, and where two of them part."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polybench.cli.options import TableFormat, with_options
from polybench.cli.output import OutputOptions, check_writable, width, write
from polybench.render import render

app = typer.Typer(no_args_is_help=True)


@app.command(name="diff")
@with_options("output")
def diff_traces(
    a: Annotated[Path, typer.Argument(metavar="A", help="Trace that is right, from polybench.record.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="Trace that may differ.")],
    options: OutputOptions,
    model: Annotated[
        str | None,
        typer.Option(
            "--model",
            help="Network that both should compute: a name or a network file. With it, causes in the forward pass are"
            " tried: activations, padding, pooling, epsilon, flipped kernels, masks.",
        ),
    ] = None,
    names: Annotated[
        Path | None,
        typer.Option("--map", help='TOML file of lines "name in A" = "name in B", where shapes and names do not tell.'),
    ] = None,
    format: TableFormat = "table",
) -> None:
    """Find the first difference of two recorded trainings, and the known causes that explain it.

    No code of the recorded programs runs. polybench.record writes the traces. --format html is a report with the
    errors over steps and layers.

    Example: polybench trace diff torch.trace keras.trace --model lenet
    """
    from polybench.networks import find_model
    from polybench.planning.study_file import read_network
    from polybench.trace.diff import diff

    network = None if model is None else read_network(model) if model.endswith(".toml") else find_model(model)
    document = diff(a, b, names, network)
    check_writable(options.output)
    if format == "html":
        from polybench.html_report import render_report

        write(render_report([document]), options.output)
    else:
        write(render(document, format, kind="trace", width=width(options.output)), options.output)


@app.command()
@with_options("output")
def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Trace, from polybench.record.")],
    options: OutputOptions,
    format: TableFormat = "table",
) -> None:
    """Print what a recorded training contains: settings, steps, losses and tensors.

    Example: polybench trace show torch.trace
    """
    from polybench.trace.file import Trace
    from polybench.trace.summary import summarize

    with Trace(file) as trace:
        document = summarize(trace)
    check_writable(options.output)
    write(render(document, format, kind="trace_summary", width=width(options.output)), options.output)
