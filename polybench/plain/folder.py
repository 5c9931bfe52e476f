"""A folder with all that a study's plain scripts need: images, weights, and how to run them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from polybench.data import Dataset
from polybench.data.batches import Order
from polybench.data.disk import room

START, IMAGES, RUN = "START.npz", "images", "run.sh"

_FILES = 5
"""Of CIFAR-10's training images."""


class Script(NamedTuple):
    """A cell's script and the words of the shell that run it, without its arguments."""

    file: str
    text: str
    command: Sequence[str]


def write_folder(
    folder: Path, dataset: Dataset, batches: Order, weights: Mapping[str, Any], scripts: Sequence[Script]
) -> None:
    """Write the scripts, what they start from, the images that they train on, and what runs all of them.

    Args:
        folder: made here; files of these names in it are replaced.
        dataset: whose images are of CIFAR-10's size, or whose sequences are tokens.
        batches: (steps, batch size) indices into its images; the others are not written.
        weights: canonical initial weights.
        scripts: one a cell.

    Raises:
        BadInput: there is no room, or the folder cannot be written.
    """
    used, renumbered = np.unique(batches, return_inverse=True)
    start: dict[str, Any] = {**weights, "batches": renumbered.reshape(batches.shape)}
    images = folder / IMAGES
    taken = len(used) * (dataset.images[0].nbytes + 1)
    with room(folder.parent, taken + sum(array.nbytes for array in start.values())):
        images.mkdir(parents=True, exist_ok=True)
        write_inputs(images, dataset, used)
        np.savez(folder / START, **start)
        for script in scripts:
            (folder / script.file).write_text(script.text, "utf-8")
        (folder / RUN).write_text(_program(scripts), "utf-8")
        (folder / RUN).chmod(0o755)


def write_inputs(folder: Path, dataset: Dataset, used: NDArray[np.int64]) -> None:
    """These images as CIFAR-10's files have them, or these tokens and labels as NumPy's files."""
    inputs, labels = dataset.images[used], dataset.labels[used]
    if inputs.ndim == 2:
        np.save(folder / "tokens.npy", inputs)
        np.save(folder / "labels.npy", labels)
        return
    records = np.hstack([labels[:, None], inputs.reshape(len(used), -1)])
    for number, part in enumerate(np.array_split(records.astype(np.uint8), _FILES), 1):
        part.tofile(folder / f"data_batch_{number}.bin")


def _program(scripts: Sequence[Script]) -> str:
    lines = [
        "#!/bin/sh",
        "# Runs every script as polybench runs its workers; each prints one line of JSON.",
        'cd "$(dirname "$0")" || exit 1',
    ]
    for script in scripts:
        command = shlex.join([*script.command, script.file, START, IMAGES])
        lines += [f"echo {shlex.quote(script.file)}:", command]
    return "\n".join(lines) + "\n"
