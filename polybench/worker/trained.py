"""Between the epochs of a whole training: test accuracy, and what the next epoch depends on."""

from __future__ import annotations

from polybench.engines.base import Array, Engine
from polybench.wire.training_messages import TrainingKept
from polybench.worker.tensors import write_tensors

EVALUATED = 500
"""Test images that are classified at a time: divides CIFAR-10's 10,000, others have a shorter last batch."""


def accuracy(engine: Engine, images: Array, labels: Array) -> float:
    """The share of the images that the current weights classify rightly."""
    batches = (slice(first, first + EVALUATED) for first in range(0, len(labels), EVALUATED))
    return sum(engine.correct(images[batch], labels[batch]) for batch in batches) / len(labels)


def keep_training(engine: Engine, path: str) -> TrainingKept:
    """Write it to an `.npz` file, where the engine can and the disk has room."""
    state = engine.training_state()
    if not state:
        return TrainingKept("this engine cannot go on with another process's training")
    try:
        write_tensors(path, state)
    except OSError as error:
        return TrainingKept(f"cannot write {path}: {error}")
    return TrainingKept("")
