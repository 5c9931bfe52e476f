"""`polybench models`: lists the networks, or the layers of one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from polybench.cli.completion import model_names
from polybench.cli.options import format_option, with_options
from polybench.cli.output import Rows, echo, print_table
from polybench.errors import BadInput
from polybench.networks.layers import Layer, Named, Shape, layer_shapes
from polybench.networks.model import Model
from polybench.schema import units

if TYPE_CHECKING:
    from polybench.networks.model import Model


@with_options("results")
def models(
    network: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|FILE.toml|ID]",
            help="Network to show: a name, a network file, or the ID of a saved study that used it.",
            autocompletion=model_names,
        ),
    ] = None,
    results: Path | None = None,
    format: Annotated[str, format_option(("table", "json", "toml"))] = "table",
) -> None:
    """Example: polybench models lenet --format toml > my_net.toml"""
    from polybench.networks import MODELS
    from polybench.networks.network_file import network_toml

    if network is None:
        if format == "toml":
            raise BadInput("--format toml: expected one network: polybench models lenet --format toml")
        print_table([_row(model) for model in MODELS.rows().values()], format, _table)
        return
    model = _find(network, results)
    if format == "toml":
        echo(network_toml(model).removesuffix("\n"))
    else:
        print_table([_row(model) | layer_details(model)], format, lambda rows: format_network(model, rows[0]))


def _find(name: str, results: Path | None) -> Model:
    """Find a network by its name, its file or the ID of a saved study that used it."""
    from polybench.networks import find_model
    from polybench.planning.study_file import NETWORK_SUFFIX, read_network
    from polybench.planning.suggested_commands import measured_study
    from polybench.storage.store import Store, results_folder

    if name.endswith(NETWORK_SUFFIX):
        return read_network(name)
    try:
        return find_model(name)
    except BadInput as unknown:
        try:
            return find_model(measured_study(Store(results_folder(results)).load(name)).model)
        except BadInput:
            raise unknown from None


def _row(model: Model) -> dict[str, Any]:

    return {
        "model": model.name,
        "summary": model.summary,
        "input_shape": model.input_shape,
        "classes": model.classes,
        "parameters": model.parameters(),
        "training_macs": model.training_macs(),
        "batch_size": model.batch_size,
        "optimizer": model.optimizer,
    }


def _table(rows: Rows) -> str:
    from polybench.networks.catdog import DEPTHS
    from polybench.render.table import Column, Table, number_columns, text_columns
    from polybench.render.terminal import render
    from polybench.schema import units

    lines = [
        (
            row["model"],
            row["summary"],
            f"{row['parameters']:,}",
            f"{units.format_number(row['training_macs'] / 1e6)} M",
            str(row["batch_size"]),
            f"{row['optimizer'].name} {row['optimizer'].learning_rate:g}",
        )
        for row in rows
    ]
    columns = [Column("model"), Column("summary", width=40)]
    columns += [*number_columns("parameters", "multiply-adds per input", "batch"), *text_columns("optimizer")]
    hints = [
        f"catdog-2 is the shallowest: catdog-N has N convolutions, {DEPTHS[0]} to {DEPTHS[-1]}.",
        "To write a network file of your own, start from: polybench models lenet --format toml",
    ]
    return render(Table(columns=columns, rows=lines, summary=hints)).removesuffix("\n")


def layer_details(model: Model) -> dict[str, Any]:
    """Return the field `layers`: a row per layer; the layers of a residual block precede the block."""
    return {
        "layers": [
            _layer_row(layer, input_shape, output_shape)
            for layer, input_shape, output_shape in layer_shapes(model.layers, model.input_shape)
        ]
    }


def format_network(model: Model, row: dict[str, Any]) -> str:
    """Format a network as text: its input, its layers and its training."""
    from polybench.render.table import Table, number_columns, text_columns
    from polybench.render.terminal import render

    lines = [
        (
            layer["name"] or "",
            layer["type"],
            _format_shape(layer["output_shape"]),
            f"{layer['parameters']:,}" if layer["parameters"] else "",
            f"{units.format_number(layer['macs'] / 1e6)} M" if layer["macs"] else "",
        )
        for layer in row["layers"]
    ]
    vocabulary = "" if model.vocabulary_size is None else f" of {model.vocabulary_size:,} tokens"
    optimizer = model.optimizer
    table = Table(
        title=[
            f"{model.name}: {model.summary}",
            f"input {_format_shape(model.input_shape)}{vocabulary}, {model.classes} classes",
        ],
        columns=[*text_columns("layer", "type", "output"), *number_columns("parameters", "multiply-adds forward")],
        rows=lines,
        summary=[
            f"{model.parameters():,} parameters, {units.format_number(row['training_macs'] / 1e6)} million"
            f" multiply-adds to train on one {model.input_kind}",
            f"batch {model.batch_size}, {optimizer.name} {optimizer.learning_rate:g},"
            f" {model.initialization.capitalize()} initialization",
        ],
    )
    return render(table).removesuffix("\n")


def _layer_row(layer: Layer, input_shape: Shape, output_shape: Shape) -> dict[str, Any]:
    return {
        "name": layer.name if isinstance(layer, Named) else None,
        "type": layer.__struct_config__.tag,
        "output_shape": output_shape,
        "parameters": sum(map(math.prod, layer.weight_shapes().values())),
        "macs": layer.macs(input_shape),
    }


def _format_shape(shape: Shape) -> str:
    return " x ".join(map(str, shape))
