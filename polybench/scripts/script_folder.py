"""Writes a folder with a study's plain programs, their images and weights, and a script that runs them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polybench.data import Dataset
from polybench.data.batches import Order
from polybench.data.disk import check_free_space
from polybench.schema.options import JULIA_SUFFIX, EngineName

INITIAL_STATE, IMAGES, RUN = "initial_state.npz", "images", "run.sh"

_FILES = 5
"""Number of CIFAR-10's files of training images."""


def file_name(configuration: str) -> str:
    """Return the name of the file of a configuration's program.

    `torch/cuda:0` is in torch_cuda0.py, and that of a user's program, `mine.jl/cpu`, in mine.jl_cpu.jl.
    """
    suffix = extension(EngineName.parse(configuration.partition("/")[0]).engine)
    return f"{configuration.replace('/', '_').replace(':', '').replace('#', '_')}{suffix}"


def extension(engine: str) -> str:
    """Return the file extension of the programs of an engine, or of a user's program."""
    return JULIA_SUFFIX if engine in ("flux", "lux") or engine.endswith(JULIA_SUFFIX) else ".py"


class PlainScript(NamedTuple):
    """A configuration's script, and the command that runs it, without its arguments."""

    file: str
    text: str
    command: Sequence[str]


def write_folder(
    folder: Path, dataset: Dataset, batches: Order, weights: Mapping[str, Any], scripts: Sequence[PlainScript]
) -> None:
    """Write the programs, their initial state, the images that they train on, and `run.sh`; BadInput if that fails.

    The data set has images of CIFAR-10's size, or token sequences. `batches` are (steps, batch size) indices into it;
    other images are not written.
    """
    used, renumbered = np.unique(batches, return_inverse=True)
    start: dict[str, Any] = {**weights, "batches": renumbered.reshape(batches.shape)}
    images = folder / IMAGES
    size = len(used) * (dataset.images[0].nbytes + 1)
    with check_free_space(folder.parent, size + sum(array.nbytes for array in start.values())):
        images.mkdir(parents=True, exist_ok=True)
        write_inputs(images, dataset, used)
        np.savez(folder / INITIAL_STATE, **start)
        for script in scripts:
            (folder / script.file).write_text(script.text, "utf-8")
        (folder / RUN).write_text(_program(scripts), "utf-8")
        (folder / RUN).chmod(0o755)


def write_inputs(folder: Path, dataset: Dataset, used: NDArray[np.int64]) -> None:
    """Write these images in CIFAR-10's format, or these tokens or features and their labels as NumPy files."""
    inputs, labels = dataset.images[used], dataset.labels[used]
    if inputs.ndim < 4:
        np.save(folder / "tokens.npy", inputs)
        np.save(folder / "labels.npy", labels)
        return
    records = np.hstack([labels[:, None], inputs.reshape(len(used), -1)])
    for number, part in enumerate(np.array_split(records.astype(np.uint8), _FILES), 1):
        part.tofile(folder / f"data_batch_{number}.bin")


def _program(scripts: Sequence[PlainScript]) -> str:
    lines = [
        "#!/bin/sh",
        "# Runs every program like polybench runs its workers; each prints one line of JSON.",
        'cd "$(dirname "$0")" || exit 1',
    ]
    for script in scripts:
        command = shlex.join([*script.command, script.file, INITIAL_STATE, IMAGES])
        lines += [f"echo {shlex.quote(script.file)}:", command]
    return "\n".join(lines) + "\n"
