"""The check that an input pipeline hands out the batches that the study's decisions ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from polybench.core.document.identity import TensorError
from polybench.core.errors import CellFailed
from polybench.data.epoch import EpochFile, open_epoch

TOLERANCE = 1e-6
"""Of a pixel in 0..1: a few roundings in float32; one grey level is 4e-3."""


def batch_errors(step: int, got: Path, epoch: EpochFile) -> Iterator[TensorError]:
    """The largest difference of a pixel, and the share of wrong labels.

    Args:
        step: which batch it is.
        got: `.npz` with `images` and `labels`, canonical, as the engine trains on them.
        epoch: the batches as they should be.

    Raises:
        CellFailed: the batch has another shape.
    """
    images, labels = open_epoch(epoch)
    wanted = {"images": images[step], "labels": labels[step]}
    with np.load(got) as file:
        for name, want in wanted.items():
            have = file[name]
            if have.shape != want.shape:
                raise CellFailed(
                    f"batch {step}: {name} should be {want.shape}, the pipeline gave {have.shape}"
                )
            difference = np.abs(have.astype(np.float64) - want)
            error = float(difference.max() if name == "images" else (difference > 0).mean())
            yield TensorError("timed", name, step, "batch", error if np.isfinite(error) else None, TOLERANCE)
