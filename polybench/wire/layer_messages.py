"""What parent and worker say to each other of layers, each timed alone; see `wire.messages`."""

from __future__ import annotations

import msgspec

from polybench.core.document.layers import Part


class WriteLayers(msgspec.Struct, frozen=True, tag="write_layers"):
    """Of the reference: what goes into each layer, and the gradient of what comes out. Answer: LayersWritten.

    They go to files in this folder, see `worker.layers.write_layers`.
    """

    folder: str


class OpenLayers(msgspec.Struct, frozen=True, tag="open_layers"):
    """Build each layer alone, with these weights (`.npz`) and those files. Answer: LayersOpened."""

    weights: str
    folder: str


class TimeLayers(msgspec.Struct, frozen=True, tag="time_layers"):
    """Time every part of every layer `repeats` times. Answer: LayersTimed."""

    repeats: int


class LayersWritten(msgspec.Struct, frozen=True, tag="layers_written"):
    """The files are there."""


class LayersOpened(msgspec.Struct, frozen=True, tag="layers_opened"):
    """Everything is built, and was computed once."""


class PartTimed(msgspec.Struct, frozen=True):
    """Seconds of a part, and of the garbage collector in it, which are not in these.

    `piece` is its number in `core.pieces.pieces(model)`; null for what belongs to no layer.
    """

    piece: int | None
    part: Part
    seconds: float
    gc_seconds: float | None


class LayersTimed(msgspec.Struct, frozen=True, tag="layers_timed"):
    """Every part once."""

    parts: list[PartTimed]
