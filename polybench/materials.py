"""The files that all workers of a study share: initial weights, one epoch of batches, the parity batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polybench.core.errors import BadInput
from polybench.core.spec import Study, evaluates
from polybench.data import Dataset, open_dataset
from polybench.data.batches import epoch_order, order_sha256
from polybench.data.epoch import EpochFile, write_epoch
from polybench.models.initial_weights import initial_weights, weights_sha256
from polybench.plan import Plan

_TEST_BATCH = 500
"""Divides CIFAR-10's 10,000 test images."""


class Materials(NamedTuple):
    """Paths and hashes; the arrays stay on disk."""

    dataset: Dataset
    weights: Path
    epoch: EpochFile
    parity: EpochFile
    test: EpochFile | None
    weights_sha256: str
    batches_sha256: str


def make(plan: Plan, scratch: Path) -> Materials:
    """Write everything into `scratch`.

    Raises:
        BadInput: the data cannot be read, does not fit the network, or holds less than one batch.
    """
    study, batch_size = plan.study, plan.workload.batch_size
    model = plan.model
    dataset = open_dataset(
        study.data, study.seed, scratch, image_shape=model.input_shape, classes=model.classes
    )
    order = epoch_order(len(dataset.images), batch_size, study.seed, epoch=0)
    if study.parity and study.parity_steps >= len(order):
        raise BadInput(
            f"--parity-steps {study.parity_steps}: an epoch has only {len(order)} batches of {batch_size}"
        )
    weights: dict[str, Any] = dict(initial_weights(model, study.seed))
    weights_file = scratch / "weights.npz"
    np.savez(weights_file, **weights)
    parity_order = order[: study.parity_steps + 1, : min(batch_size, model.parity_batch_size)]
    return Materials(
        dataset=dataset,
        weights=weights_file,
        epoch=write_epoch(dataset, order, _folder(scratch, "epoch")),
        parity=write_epoch(dataset, parity_order, _folder(scratch, "parity")),
        test=_test(study, scratch) if evaluates(study) else None,
        weights_sha256=weights_sha256(weights),
        batches_sha256=order_sha256(order),
    )


def seeded_weights(plan: Plan, seed: int, scratch: Path) -> Path:
    """Initial weights of another seed than the study's first."""
    path = scratch / f"weights-{seed}.npz"
    if not path.exists():
        weights: dict[str, Any] = dict(initial_weights(plan.model, seed))
        np.savez(path, **weights)
    return path


def _test(study: Study, scratch: Path) -> EpochFile:
    """The test images in their own order; a last batch that would be partial is dropped."""
    dataset = open_dataset(study.data, study.seed, scratch, "test")
    batch = min(_TEST_BATCH, len(dataset.images))
    steps = len(dataset.images) // batch
    order = np.arange(steps * batch, dtype=np.int64).reshape(steps, batch)
    return write_epoch(dataset, order, _folder(scratch, "test"))


def _folder(scratch: Path, name: str) -> Path:
    folder = scratch / name
    folder.mkdir()
    return folder
