"""Writes the files that all workers share: initial weights, one epoch of batches, batches of the parity
check."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from polybench.data import Dataset, open_dataset
from polybench.data.array_chunks import Split
from polybench.data.batch_files import (
    EpochFile,
    PipelineFiles,
    cached_epoch,
    write_epoch,
    write_images,
    write_pipeline_files,
)
from polybench.data.batches import augmentation_stream, batch_stream, epoch_order, order_sha256
from polybench.errors import BadInput
from polybench.networks.initial_weights import initial_weights, weights_sha256
from polybench.networks.model import Model
from polybench.planning.plan import Plan
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK, Study, does_evaluate, max_epochs

LARGEST_ORDER = 2 << 30
"""Maximum bytes of a study's image order: 5,000 epochs of CIFAR-10."""

_PRELOADED_STEPS = 8
"""Preloaded batches of a study with input pipelines, to time the training without the pipeline."""


class SharedFiles(NamedTuple):
    """Paths and hashes of the shared files.

    Input pipelines read `stream` and `parity_stream`. `epoch` then contains their first few expected batches,
    and `parity` all checked batches.
    """

    dataset: Dataset
    weights: Path
    epoch: EpochFile
    parity: EpochFile
    test: EpochFile | None
    weights_sha256: str
    batches_sha256: str
    stream: PipelineFiles | None = None
    parity_stream: PipelineFiles | None = None

    @property
    def steps_in_epoch(self) -> int:
        """Full batches of an epoch."""
        return self.epoch.steps if self.stream is None else self.stream.steps_per_epoch

    @property
    def loaded_bytes(self) -> int:
        """Bytes of an engine's own copy of the data."""
        return self.epoch.bytes + (0 if self.stream is None else self.stream.bytes)


def dataset_of(study: Study, model: Model, scratch: Path, split: Split = "train") -> Dataset:
    """Open the data set of a study."""
    takes = model.input_shape, model.classes, model.vocabulary_size, model.label_shape
    return open_dataset(study.data, study.seed, scratch, split, *takes)


def write(plan: Plan, scratch: Path) -> SharedFiles:
    """Write everything into `scratch`.

    Raises BadInput if the data cannot be read, do not fit the network, or have less than one batch.
    """
    study, batch_size = plan.study, plan.workload.batch_size
    model = plan.model
    dataset = dataset_of(study, model, scratch)
    order = epoch_order(len(dataset.images), batch_size, study.seed, epoch=0)
    if study.parity and study.parity_steps >= len(order):
        raise BadInput(f"--parity-steps {study.parity_steps}: an epoch has only {len(order)} batches of {batch_size}")
    weights = initial_weights(model, study.seed)
    weights_file = scratch / "weights.npz"
    np.savez(weights_file, **cast("dict[str, Any]", weights))
    # The parity check's batches have the model's size, reduced to a multiple of all replica counts.
    each = math.lcm(*study.replica_counts)
    checked_batch_size = min(batch_size, model.parity_batch_size)
    checked = np.s_[: study.parity_steps + 1, : max(each, checked_batch_size - checked_batch_size % each)]
    pipeline = study.input == "pipeline"
    # A timing block may extend into the next epoch by its warm-up steps. For 50,000 images, the order of an
    # epoch takes 400 kB, its augmentations 150 kB.
    steps = max(WARMUP_STEPS_PER_BLOCK + max(len(order), study.steps_per_round or 0), len(order) * max_epochs(study))
    if pipeline and 8 * steps * batch_size > LARGEST_ORDER:
        most = LARGEST_ORDER // (8 * len(order) * batch_size)
        raise BadInput(f"{max_epochs(study)} epochs exceed the limit for input pipelines: use at most --epochs {most}")
    augmentations = augmentation_stream(len(order), batch_size, study.seed, steps) if study.augment else None
    checked_augmentations = None if augmentations is None else augmentations[checked]
    epoch, parity = scratch / "epoch", scratch / "parity"
    test = None
    if does_evaluate(study):  # all test images as one batch, in the order of the data set
        images = dataset_of(study, model, scratch, "test")
        test = write_epoch(images, np.arange(len(images.images))[None], scratch / "test")
    files = SharedFiles(
        dataset=dataset,
        weights=weights_file,
        epoch=write_epoch(dataset, order, epoch, _PRELOADED_STEPS, augmentations)
        if pipeline
        else cached_epoch(dataset, order, epoch),
        parity=write_epoch(dataset, order[checked], parity, augmentations=checked_augmentations),
        test=test,
        weights_sha256=weights_sha256(weights),
        batches_sha256=order_sha256(order),
    )
    if not pipeline:
        return files
    write_images(dataset, scratch)
    workers = plan.workload.loader_workers or 0
    write = partial(write_pipeline_files, scratch, loader_workers=workers, steps_per_epoch=len(order))
    whole = batch_stream(len(dataset.images), batch_size, study.seed, steps)
    return files._replace(
        stream=write(whole, augmentations, epoch), parity_stream=write(order[checked], checked_augmentations, parity)
    )


def seeded_weights(plan: Plan, seed: int, scratch: Path) -> Path:
    """Return the file of the initial weights from this seed; write it once."""
    path = scratch / f"weights-{seed}.npz"
    if not path.exists():
        np.savez(path, **cast("dict[str, Any]", initial_weights(plan.model, seed)))
    return path
