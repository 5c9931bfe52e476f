"""Writes a network as plain code, with its weights. ADD A FRAMEWORK: a file, and its row in FRAMEWORKS."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np

from polybench.data.disk import atomic_write, is_file, read_regular_file
from polybench.errors import BadInput, lookup_or_suggest
from polybench.networks.initial_weights import initial_weights
from polybench.networks.model import Model

FRAMEWORKS = {
    "torch": "emitted_code:torch",
    "tf": "emitted_code:tf",
    "keras": "emitted_code:keras",
    "jax": "emitted_code:jax",
    "flux": "emitted_code:flux",
    "lux": "lux_code:write",
}
"""Function of each framework: (network, canonical weights) -> `Code`."""


class Code(NamedTuple):
    """A program: its first lines, with the imports; the lines that make `network`, with the weights of the .npz file
    beside the program; and the arrays of that file, in the framework's own layout.
    """

    imports: str
    network: str
    arrays: Mapping[str, Any]


def export(model: Model, weights: Mapping[str, Any], framework: str, output: Path) -> None:
    """Write the program to `output`, and its weights beside it with the suffix .npz.

    Raises BadInput for a framework that polybench cannot write, or a layer that has no plain code there.
    """
    code = write_code(model, weights, framework)
    arrays: dict[str, Any] = dict(code.arrays)
    path = output.resolve()
    with atomic_write(path.with_suffix(".npz")) as npz, atomic_write(path) as file:
        np.savez(npz, **arrays)
        file.write((code.imports + code.network).encode())


def write_code(model: Model, weights: Mapping[str, Any], framework: str) -> Code:
    """Return the program; raises BadInput for an unknown framework, or a layer that has no plain code there."""
    function = resolve_name(f"{__package__}.{lookup_or_suggest(framework, FRAMEWORKS, 'framework')}")
    code: Code = function(model, weights)
    return code


def read_weights(model: Model, network: Path, seed: int) -> tuple[dict[str, Any], str]:
    """Return the weights beside a network file, with their name; without such a file, initial ones from the seed.

    Raises BadInput if they do not fit the network.
    """
    path = network.with_suffix(".npz")
    if not is_file(path):
        return dict(initial_weights(model, seed)), f"initial weights of seed {seed}"
    shapes = model.tensor_shapes()
    try:
        with np.load(io.BytesIO(read_regular_file(path))) as arrays:
            weights = {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise BadInput(f"{path}: not a file of weights: {error}") from error
    found = {name: value.shape for name, value in weights.items()}
    for name in {*shapes, *found}:
        if shapes.get(name) != found.get(name):
            raise BadInput(f"{path}: {name} has shape {found.get(name)}: expected {shapes.get(name)}, as in {network}")
    return weights, path.name
