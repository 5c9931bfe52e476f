"""Messages that move a training to another process between two epochs; see `protocol.messages`."""

from __future__ import annotations

import msgspec


class SaveTraining(msgspec.Struct, frozen=True, tag="save_training"):
    """Write the training state, all that the next step depends on, to an `.npz` file.

    Response: TrainingSaved.
    """

    path: str


class RestoreTraining(msgspec.Struct, frozen=True, tag="restore_training"):
    """Load a training state that another process with the same versions has saved. Response: Done."""

    path: str


class TrainingSaved(msgspec.Struct, frozen=True, tag="training_saved"):
    """`error` says why the worker could not save the training; it is empty on success."""

    error: str
