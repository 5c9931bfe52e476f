"""How a training goes on in another process: what is asked of a worker between epochs, and its answer."""

from __future__ import annotations

import msgspec


class KeepTraining(msgspec.Struct, frozen=True, tag="keep_training"):
    """Write all that the next step depends on to an `.npz` file. Answer: TrainingKept."""

    path: str


class GoOn(msgspec.Struct, frozen=True, tag="go_on"):
    """Take up the training that another process of the same versions has kept in a file. Answer: Advanced."""

    path: str


class TrainingKept(msgspec.Struct, frozen=True, tag="training_kept"):
    """`why_not` is empty where it was."""

    why_not: str
