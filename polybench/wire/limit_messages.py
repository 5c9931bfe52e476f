"""What parent and worker say to each other of the machine's limits; see `wire.messages`."""

from __future__ import annotations

import msgspec

from polybench.core.pieces import Piece


class Alone(msgspec.Struct, frozen=True):
    """A piece, of the job's model or of none, for a batch of its own."""

    piece: Piece
    batch_size: int


class OpenAlone(msgspec.Struct, frozen=True, tag="open_alone"):
    """Build each of these alone, with random numbers. Answer: LayersOpened; they are timed by TimeLayers."""

    given: list[Alone]


class TimeNumpy(msgspec.Struct, frozen=True, tag="time_numpy"):
    """Time NumPy's products of square float32 matrices, and the triad. Answer: NumpyTimed.

    No engine need be loaded. Each is done `repeats` times; the arrays of the triad have `triad_bytes` each,
    null is for no triad.
    """

    sizes: tuple[int, ...]
    triad_bytes: int | None
    threads: int
    repeats: int


class NumpyTimed(msgspec.Struct, frozen=True, tag="numpy_timed"):
    """Median seconds: one for each size, and one of the triad."""

    products: list[float]
    triad: float | None
