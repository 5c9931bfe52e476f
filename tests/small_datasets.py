"""A small data set and small files, for tests with real trainings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polybench.data import Dataset, Split
from polybench.data.batch_files import EpochFile, write_epoch
from polybench.data.batches import epoch_order
from polybench.engines.job import Job
from polybench.networks import MODELS
from polybench.networks.initial_weights import initial_weights
from polybench.networks.model import Model
from polybench.networks.optimizers import Optimizer
from polybench.schema.options import Workload

SYNTHETIC: dict[Split, int] = {"train": 2000, "test": 1000}
"""Synthetic images of whole studies, instead of 60,000."""


class Files(NamedTuple):
    weights: Path
    epoch: EpochFile


def dataset(images: int = 64, seed: int = 0, model: Model = MODELS["lenet"]) -> Dataset:
    random = np.random.default_rng(seed)
    largest, dtype = (256, np.uint8) if model.vocabulary_size is None else (model.vocabulary_size, np.int32)
    pixels = random.integers(0, largest, (images, *model.input_shape), dtype)
    labels = random.integers(0, model.classes, (images, *model.label_shape), dtype=np.uint8)
    return Dataset("synthetic", "noise", pixels, labels, "0" * 64)


def cifar_folder(parent: Path, images: int) -> Path:
    """Write training images of large smooth patches, which a network can classify, in CIFAR-10's binary format."""
    random = np.random.default_rng(8)
    patches = random.integers(0, 256, (5, images // 5, 3, 4, 4), np.uint8).repeat(8, 3).repeat(8, 4)
    labels = random.integers(0, 10, (5, images // 5, 1)).astype(np.uint8)
    folder = parent / "cifar"
    folder.mkdir()
    for number, (pixels, classes) in enumerate(zip(patches, labels, strict=True), start=1):
        np.hstack([classes, pixels.reshape(images // 5, -1)]).tofile(folder / f"data_batch_{number}.bin")
    return folder


def files(folder: Path, data: Dataset | None = None, batch_size: int = 8, model: Model = MODELS["lenet"]) -> Files:
    weights: dict[str, Any] = dict(initial_weights(model, 0))
    np.savez(folder / "weights.npz", **weights)
    data = data or dataset(model=model)
    order = epoch_order(len(data.images), batch_size, seed=0, epoch=0)
    return Files(folder / "weights.npz", write_epoch(data, order, folder))


def workload(batch_size: int = 8, precision: Any = "fp32", **optimizer: Any) -> Workload:
    return Workload(
        model="lenet",
        dataset="synthetic",
        batch_size=batch_size,
        optimizer=Optimizer(**optimizer),
        precision=precision,
        threads=2,
    )


def job(model: Model = MODELS["lenet"], **workload_fields: Any) -> Job:
    return Job(model, workload(**workload_fields), "cpu", "float32")
