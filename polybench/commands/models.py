"""`polybench models`: what `--model` takes, and what one of them is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polybench.commands.rows import Rows, print_rows
from polybench.commands.signature import takes
from polybench.commands.terminal import echo
from polybench.core.errors import BadInput
from polybench.core.names import pick

if TYPE_CHECKING:
    from polybench.core.model import Model

Format = Annotated[
    str, typer.Option("--format", help="table, json, or toml: a network as a file of its own.")
]


@takes("results")
def models(
    network: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|FILE.toml|ID]", help="One of them, a file of your own, or that of a saved study."
        ),
    ] = None,
    results: Path | None = None,
    format: Format = "table",
) -> None:
    """List the networks, or say what is in one: layers, what they put out, parameters, multiply-adds.

    Example: polybench models lenet --format toml > my_net.toml
    """
    from polybench.commands.network import table_of, with_layers
    from polybench.models import MODELS
    from polybench.planning.network_table import network_toml

    pick(format, dict.fromkeys(("table", "json", "toml")), "format")
    if network is None:
        if format == "toml":
            raise BadInput("--format toml writes one network: polybench models lenet --format toml")
        print_rows([_row(model) for model in MODELS.values()], format, _table)
        return
    model = _find(network, results)
    if format == "toml":
        echo(network_toml(model).removesuffix("\n"))
    else:
        print_rows([_row(model) | with_layers(model)], format, lambda rows: table_of(model, rows[0]))


def _find(name: str, results: Path | None) -> Model:
    """A network by its name, its file, or a study that was measured with it."""
    from polybench.models import find_model
    from polybench.planning.follow_ups import measured_study
    from polybench.planning.network_file import SUFFIX, place_of, read_network
    from polybench.report.saved_studies import Store, results_folder

    if name.endswith(SUFFIX):
        return read_network(place_of(name))
    try:
        return find_model(name)
    except BadInput as unknown:
        try:
            return find_model(measured_study(Store(results_folder(results)).load(name)).model)
        except BadInput:
            raise unknown from None


def _row(model: Model) -> dict[str, Any]:
    from polybench.core.arithmetic import training_multiply_adds

    return {
        "model": model.name,
        "summary": model.summary,
        "input_shape": model.input_shape,
        "classes": model.classes,
        "parameters": model.parameters(),
        "training_multiply_adds": training_multiply_adds(model),
        "batch_size": model.batch_size,
        "optimizer": model.optimizer,
    }


def _table(rows: Rows) -> str:
    from tabulate import tabulate

    from polybench.core import units
    from polybench.models.catdog import DEPTHS

    lines = [
        (
            row["model"],
            row["summary"],
            f"{row['parameters']:,}",
            f"{units.number(row['training_multiply_adds'] / 1e6)} M",
            row["batch_size"],
            f"{row['optimizer'].name} {row['optimizer'].learning_rate:g}",
        )
        for row in rows
    ]
    header = ["model", "what it is", "parameters", "multiply-adds\nan input", "batch", "optimizer"]
    table = tabulate(
        lines,
        headers=header,
        maxcolwidths=[None, 40, None, None, None, None],
        colalign=["left", "left", "right", "right", "right", "left"],
        disable_numparse=True,
    )
    return (
        f"{table}\n\ncatdog-2 is the shallowest: catdog-N has N convolutions, {DEPTHS[0]} to {DEPTHS[-1]};"
        "\na network of your own is a file like this one: polybench models lenet --format toml"
    )
