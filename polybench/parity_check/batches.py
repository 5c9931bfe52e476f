"""Checks that an input pipeline delivers the batches that the study's augmentation choices define."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from polybench.data.batch_files import EpochFile, open_epoch
from polybench.errors import ConfigurationFailed
from polybench.schema.parity import TensorComparison

TOLERANCE = 1e-6
"""Largest difference of a pixel in 0..1. It allows a few float32 roundings; one grey level is 4e-3."""


def batch_errors(step: int, actual_path: Path, epoch: EpochFile) -> Iterator[TensorComparison]:
    """Yield the largest pixel difference and the fraction of wrong labels.

    Args:
        step: index of the batch.
        actual_path: `.npz` with `images` and `labels` in the canonical layout, as the engine trains on them.
        epoch: the expected batches.

    Raises:
        ConfigurationFailed: an array of the batch has the wrong shape.
    """
    images, labels = open_epoch(epoch)
    expected_arrays = {"images": images[step], "labels": labels[step]}
    with np.load(actual_path) as file:
        for name, expected in expected_arrays.items():
            actual = file[name]
            if actual.shape != expected.shape:
                raise ConfigurationFailed(
                    f"batch {step}: expected {name} of shape {expected.shape}, but the input pipeline"
                    f" delivered {actual.shape}"
                )
            difference = np.abs(actual.astype(np.float64) - expected)
            error = float(difference.max() if name == "images" else (difference > 0).mean())
            yield TensorComparison("timed", name, step, "batch", error if np.isfinite(error) else None, TOLERANCE)
