"""Test accuracy between two epochs, and saving a training."""

from __future__ import annotations

from polybench.engines.base import Array, Engine
from polybench.protocol.training_messages import TrainingSaved
from polybench.worker.tensors import write_tensors

EVALUATION_BATCH_SIZE = 500
"""Test images per batch. It divides CIFAR-10's 10,000; for other data sets the last batch is smaller."""


def accuracy(engine: Engine, images: Array, labels: Array) -> float:
    """Return the fraction of images that the current weights classify correctly."""
    batches = (slice(first, first + EVALUATION_BATCH_SIZE) for first in range(0, len(labels), EVALUATION_BATCH_SIZE))
    return sum(engine.count_correct(images[batch], labels[batch]) for batch in batches) / len(labels)


def save_training(engine: Engine, path: str) -> TrainingSaved:
    """Write the training state to an `.npz` file, if the engine supports this and the disk has space."""
    state = engine.training_state()
    if not state:
        return TrainingSaved("this engine cannot resume a training in another process")
    try:
        write_tensors(path, state)
    except OSError as error:
        return TrainingSaved(f"cannot write {path}: {error}")
    return TrainingSaved("")
