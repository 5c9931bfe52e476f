"""The files that all workers of a study share: initial weights, one epoch of batches, the parity batches."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from polybench.core.errors import BadInput
from polybench.core.model import Model
from polybench.core.spec import UNTIMED_STEPS, Study, evaluates, most_epochs
from polybench.data import Dataset, open_dataset
from polybench.data.augmentation import decision_stream
from polybench.data.batches import batch_stream, epoch_order, order_sha256
from polybench.data.chunks import Split
from polybench.data.epoch import EpochFile, kept_epoch, write_epoch
from polybench.data.stream import StreamFile, write_images, write_stream
from polybench.models.initial_weights import initial_weights, weights_sha256
from polybench.planning.plan import Plan

LARGEST_ORDER = 2 << 30
"""Bytes of the order in which all images of a study come: 5,000 epochs of CIFAR-10."""

_PRELOADED_STEPS = 8
"""Batches of a study with input pipelines that are preloaded all the same, to time the training alone."""


class SharedFiles(NamedTuple):
    """Paths and hashes; the arrays stay on disk.

    With input pipelines, `stream` and `parity_stream` are what they read; `epoch` has the first few of their
    batches as they should come out, and `parity` all those that are checked.
    """

    dataset: Dataset
    weights: Path
    epoch: EpochFile
    parity: EpochFile
    test: EpochFile | None
    weights_sha256: str
    batches_sha256: str
    stream: StreamFile | None = None
    parity_stream: StreamFile | None = None

    @property
    def steps_in_epoch(self) -> int:
        """Whole batches of an epoch, as the cells train it."""
        return self.epoch.steps if self.stream is None else self.stream.steps_in_epoch

    @property
    def loaded_bytes(self) -> int:
        """What an engine that copies its data has of it."""
        return self.epoch.bytes + (0 if self.stream is None else self.stream.bytes)


def dataset_of(study: Study, model: Model, scratch: Path, split: Split = "train") -> Dataset:
    """What a study trains its network on, or tests it with.

    Raises:
        BadInput: the data cannot be read, or does not fit the network.
    """
    takes = model.input_shape, model.classes, model.vocabulary
    return open_dataset(study.data, study.seed, scratch, split, *takes)


def write(plan: Plan, scratch: Path) -> SharedFiles:
    """Write everything into `scratch`.

    Raises:
        BadInput: the data cannot be read, does not fit the network, or holds less than one batch.
    """
    study, batch_size = plan.study, plan.workload.batch_size
    model = plan.model
    dataset = dataset_of(study, model, scratch)
    order = epoch_order(len(dataset.images), batch_size, study.seed, epoch=0)
    if study.parity and study.parity_steps >= len(order):
        raise BadInput(
            f"--parity-steps {study.parity_steps}: an epoch has only {len(order)} batches of {batch_size}"
        )
    weights: dict[str, Any] = dict(initial_weights(model, study.seed))
    weights_file = scratch / "weights.npz"
    np.savez(weights_file, **weights)
    checked = np.s_[: study.parity_steps + 1, : _parity_batch_size(plan)]
    pipeline = study.input == "pipeline"
    # A block may go on into the next epoch, by the steps that come before the timed ones. Of 50,000 images,
    # an epoch's order is 400 kB, its decisions 150 kB.
    steps = max(UNTIMED_STEPS + max(len(order), study.steps or 0), len(order) * most_epochs(study))
    if pipeline and 8 * steps * batch_size > LARGEST_ORDER:
        most = LARGEST_ORDER // (8 * len(order) * batch_size)
        raise BadInput(
            f"{most_epochs(study)} epochs are more than an input pipeline is prepared for;"
            f" try --epochs {most}"
        )
    decisions = decision_stream(len(order), batch_size, study.seed, steps) if study.augment else None
    checked_decisions = None if decisions is None else decisions[checked]
    epoch, parity = _folder(scratch, "epoch"), _folder(scratch, "parity")
    files = SharedFiles(
        dataset=dataset,
        weights=weights_file,
        epoch=write_epoch(dataset, order, epoch, _PRELOADED_STEPS, decisions)
        if pipeline
        else kept_epoch(dataset, order, epoch),
        parity=write_epoch(dataset, order[checked], parity, decisions=checked_decisions),
        test=_test(plan, scratch) if evaluates(study) else None,
        weights_sha256=weights_sha256(weights),
        batches_sha256=order_sha256(order),
    )
    if not pipeline:
        return files
    images = write_images(dataset, scratch)
    write = partial(write_stream, images, workers=plan.workload.workers or 0, steps_in_epoch=len(order))
    whole = batch_stream(len(dataset.images), batch_size, study.seed, steps)
    return files._replace(
        stream=write(whole, decisions, epoch), parity_stream=write(order[checked], checked_decisions, parity)
    )


def _parity_batch_size(plan: Plan) -> int:
    """That of the model, as far as all numbers of replicas divide it."""
    each = math.lcm(*plan.study.replica_counts)
    most = min(plan.workload.batch_size, plan.model.parity_batch_size)
    return max(each, most - most % each)


def seeded_weights(plan: Plan, seed: int, scratch: Path) -> Path:
    """The file of the network's initial weights from this seed, written once."""
    path = scratch / f"weights-{seed}.npz"
    if not path.exists():
        weights: dict[str, Any] = dict(initial_weights(plan.model, seed))
        np.savez(path, **weights)
    return path


def _test(plan: Plan, scratch: Path) -> EpochFile:
    """All test images, as one batch, in their own order; which may be class by class."""
    dataset = dataset_of(plan.study, plan.model, scratch, "test")
    return write_epoch(dataset, np.arange(len(dataset.images))[None], _folder(scratch, "test"))


def _folder(scratch: Path, name: str) -> Path:
    folder = scratch / name
    folder.mkdir()
    return folder
