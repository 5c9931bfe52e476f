"""`polybench import`: a user's model becomes a network file with its weights."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from polybench.cli.options import TableFormat
from polybench.cli.output import echo, terminal_width, write
from polybench.errors import BadInput
from polybench.render import WIDTH, render

if TYPE_CHECKING:
    from polybench.networks.layers import Shape


def import_model(
    model: Annotated[
        str, typer.Argument(metavar="FILE:NAME", help="Python or Julia file, and the model, class or function in it.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Network file to write; its weights get the suffix .npz.")
    ],
    input_shape: Annotated[
        str | None,
        typer.Option(
            "--input",
            metavar="SHAPE",
            help="Shape of one input: channels x height x width (3x32x32), time x features (40x57), or the number of"
            " tokens (64).",
            show_default="that of a Keras model",
        ),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Limit for running the file, in seconds.")] = 600.0,
    format: TableFormat = "table",
) -> None:
    """The file runs in a separate process: import only files that you trust. A class or function is called without
    arguments. The proof trains and evaluates the original program and the network in float64, from equal weights and
    batches, and compares them as the parity check does. Without a proof, nothing is written.

    Example: polybench import model.py:Net --input 3x32x32 -o net.toml
    """
    file, separator, name = model.rpartition(":")
    if not separator or not name.isidentifier():
        raise BadInput(f"{model}: expected FILE:NAME, such as model.py:Net")
    if output.suffix != ".toml":
        raise BadInput(f"--output {output}: expected a name that ends in .toml")
    _import(Path(file), name, _parse_shape(input_shape), output, timeout, format)


def _import(file: Path, name: str, shape: Shape | None, output: Path, timeout: float, format: str) -> None:
    from polybench.data.disk import atomic_write, is_file
    from polybench.importer import WEIGHTS, run_import
    from polybench.runner.scratch import scratch_folder

    if not is_file(file):
        raise BadInput(f"{file}: no such file")
    if file.suffix not in (".py", ".jl"):
        raise BadInput(f"{file}: expected a Python or a Julia file")
    if not output.resolve().parent.is_dir():
        raise BadInput(f"--output {output}: no such folder: create it first")
    echo(f"running {file} in a separate process, for at most {timeout:g} s", err=True)
    with scratch_folder() as folder:
        document = run_import(file, name, shape, folder, timeout)
        if document.proof.failure is None:
            weights = output.resolve().with_suffix(".npz")
            with atomic_write(weights) as npz, atomic_write(output.resolve()) as toml:
                npz.write((folder / WEIGHTS).read_bytes())
                toml.write(document.network.encode())
    write(render(document, format, kind="imported", width=terminal_width() or WIDTH), None)
    if document.proof.failure is not None:
        echo("wrote nothing, because the network is not the same as the program", err=True)
        raise typer.Exit(1)
    echo(f"wrote {output} and {weights.name}", err=True)


def _parse_shape(text: str | None) -> Shape | None:
    if text is None:
        return None
    if not re.fullmatch(r"[1-9]\d{0,5}(x[1-9]\d{0,5}){0,2}", text):
        raise BadInput(f"--input {text}: expected a shape such as 3x32x32, 40x57 or 64")
    return tuple(map(int, text.split("x")))
