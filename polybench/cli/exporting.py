"""`polybench export`: a network becomes plain code."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from polybench.cli.output import echo
from polybench.errors import BadInput


def export(
    network: Annotated[str, typer.Argument(metavar="NAME|FILE.toml", help="Network: a file, or one of polybench's.")],
    framework: Annotated[str, typer.Option("--framework", help="Framework: torch, tf, keras, jax, flux or lux.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="File to write, .py or .jl; its weights: .npz.")],
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the weights, if none are beside the file.")] = 0,
) -> None:
    """Write a network as plain code of a framework, with its weights.

    The weights are those beside the network file, with the suffix .npz, as `polybench import` writes them.

    Example: polybench export net.toml --framework keras -o net.py
    """
    from polybench.networks import find_model
    from polybench.planning.study_file import NETWORK_SUFFIX, read_network
    from polybench.scripts.network_code import export as write_code
    from polybench.scripts.network_code import read_weights

    suffix = ".jl" if framework in ("flux", "lux") else ".py"
    if output.suffix != suffix:
        raise BadInput(f"--output {output}: expected a name that ends in {suffix}")
    if not output.resolve().parent.is_dir():
        raise BadInput(f"--output {output}: no such folder: create it first")
    is_from_file = network.endswith(NETWORK_SUFFIX)
    model = read_network(network) if is_from_file else find_model(network)
    path = Path(network) if is_from_file else Path(f"{network}{NETWORK_SUFFIX}")
    if path.resolve().with_suffix(".npz") == output.resolve().with_suffix(".npz") and is_from_file:
        raise BadInput(f"--output {output}: its weights would replace those of {network}: choose another name")
    weights, source = read_weights(model, path, seed)
    write_code(model, weights, framework, output)
    echo(f"wrote {output} and {output.with_suffix('.npz').name}, with {source}", err=True)
