"""Whole trainings of a cell: epochs, accuracy, and the time to an accuracy."""

from __future__ import annotations

import msgspec


class TrainedEpoch(msgspec.Struct, frozen=True):
    """One epoch of a whole training."""

    seconds: float
    """Of training; evaluation is not in it."""
    steps_per_second: list[float]
    """Of each tenth of the epoch; of the whole where the engine's calls have a cost of their own."""
    loss: float
    """The last step's, or what the engine reports for its last call."""
    accuracy: float | None
    """The share of the test images that is classified rightly."""


class Training(msgspec.Struct, frozen=True):
    """A training from the initial weights of one seed, in a process of its own.

    `complete` is false where it was interrupted, or failed, before its last epoch and before the accuracy
    that it was to reach.
    """

    seed: int
    epochs: list[TrainedEpoch]
    complete: bool = True

    @property
    def accuracy(self) -> float | None:
        """After the last epoch."""
        return self.epochs[-1].accuracy if self.epochs else None

    def seconds_to(self, accuracy: float) -> float | None:
        """Training time up to the end of the first epoch with at least this accuracy; None if none has it."""
        seconds = 0.0
        for epoch in self.epochs:
            seconds += epoch.seconds
            if epoch.accuracy is not None and epoch.accuracy >= accuracy:
                return seconds
        return None


class TimeToAccuracy(msgspec.Struct, frozen=True):
    """`seconds` of training: the median over seeds, null if only `reached` of `seeds` got there.

    Only complete trainings count.
    """

    accuracy: float
    seconds: float | None
    reached: int
    seeds: int


class AccuracyDifference(msgspec.Struct, frozen=True):
    """Test accuracy less the baseline's, after the same epochs: the mean over seeds that both trained from.

    Only complete trainings count.

    `interval95` is null for one seed.
    """

    baseline: str
    value: float
    interval95: tuple[float, float] | None
    epochs: int
    seeds: int
