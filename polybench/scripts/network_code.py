"""A network as the program of an engine, with the weights beside it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from polybench.data.disk import atomic_write, is_file, read_regular_file
from polybench.engines.job import Job
from polybench.errors import BadInput, EngineUnavailable, lookup_or_suggest
from polybench.networks.initial_weights import initial_weights
from polybench.networks.model import Model
from polybench.schema.options import Workload
from polybench.scripts.emitters import EMITTERS


def export(model: Model, weights: Mapping[str, Any], framework: str, output: Path) -> None:
    """Write the program to `output`, and the canonical weights beside it with the suffix .npz.

    Raises BadInput for a framework that polybench cannot write, or a layer that the framework lacks.
    """
    code, arrays = write_code(model, framework), dict(weights)
    path = output.resolve()
    with atomic_write(path.with_suffix(".npz")) as npz, atomic_write(path) as file:
        np.savez(npz, **arrays)
        file.write(code.encode())


def write_code(model: Model, framework: str) -> str:
    """Return the program; raises BadInput for an unknown framework, or a layer that the framework lacks."""
    emit_network = lookup_or_suggest(framework, EMITTERS, "framework").emit_network
    workload = Workload(model.name, "", model.batch_size, model.optimizer, "fp32", 1)
    try:
        return emit_network(Job(model, workload, "cpu", "float32"))
    except EngineUnavailable as error:
        raise BadInput(error.reason) from error


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
