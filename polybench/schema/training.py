"""Whole trainings of a configuration: epochs, accuracy, and time to an accuracy."""

from __future__ import annotations

import msgspec


class TrainedEpoch(msgspec.Struct, frozen=True):
    """An epoch of a whole training."""

    seconds: float
    """Training time, without evaluation."""
    steps_per_second: list[float]
    """For each tenth of the epoch; for the whole epoch if calls of the engine have an overhead."""
    loss: float
    """Loss of the last step, or the loss that the engine reports for its last call."""
    accuracy: float | None
    """Fraction of the test images that are classified correctly."""


class Training(msgspec.Struct, frozen=True):
    """A training from the initial weights of one seed, in its own process.

    `complete` is false if the training was interrupted or failed before its last epoch and before its target
    accuracy.
    """

    seed: int
    epochs: list[TrainedEpoch]
    complete: bool = True

    @property
    def accuracy(self) -> float | None:
        """Accuracy after the last epoch."""
        return self.epochs[-1].accuracy if self.epochs else None

    def time_to_accuracy(self, accuracy: float) -> float | None:
        """Training time until the end of the first epoch with at least this accuracy; None if none has it."""
        seconds = 0.0
        for epoch in self.epochs:
            seconds += epoch.seconds
            if epoch.accuracy is not None and epoch.accuracy >= accuracy:
                return seconds
        return None


class TimeToAccuracy(msgspec.Struct, frozen=True):
    """Training time to an accuracy: the median over seeds, null if not all `seeds` reached it.

    Only complete trainings count.
    """

    accuracy: float
    seconds: float | None
    seeds_reached: int
    seeds: int


class AccuracyDifference(msgspec.Struct, frozen=True):
    """Test accuracy minus the baseline's after the same epochs: the mean over the seeds that both used.

    Only complete trainings count. `ci95` is null for one seed.
    """

    baseline: str
    value: float
    ci95: tuple[float, float] | None
    epochs: int
    seeds: int
