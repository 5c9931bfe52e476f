"""Messages about timing the operations of single layers; see `protocol.messages`."""

from __future__ import annotations

import msgspec

from polybench.networks.layers import Operation


class WriteLayerTensors(msgspec.Struct, frozen=True, tag="write_layer_tensors"):
    """Write each layer's input and the gradient of its output to files. Response: LayerTensorsWritten.

    Only the reference engine does this. See `worker.layers.write_layer_tensors` for the files in `folder`.
    """

    folder: str


class BuildLayerOps(msgspec.Struct, frozen=True, tag="build_layer_ops"):
    """Build each layer alone, from weights (`.npz`) and the layer tensors. Response: LayerOpsBuilt."""

    weights: str
    folder: str


class TimeLayerOps(msgspec.Struct, frozen=True, tag="time_layer_ops"):
    """Time every operation of every layer `repeats` times. Response: LayerOpsTimed."""

    repeats: int


class LayerTensorsWritten(msgspec.Struct, frozen=True, tag="layer_tensors_written"):
    """Confirms that the files are written."""


class LayerOpsBuilt(msgspec.Struct, frozen=True, tag="layer_ops_built"):
    """Confirms that every operation is built and has run once."""


class OperationTime(msgspec.Struct, frozen=True):
    """Seconds of an operation, without garbage collection, and seconds of garbage collection meanwhile.

    `layer_index` is the layer's index in `networks.timed_layers.split_layers(model)`. It is null for an
    operation of the whole step.
    """

    layer_index: int | None
    operation: Operation
    seconds: float
    gc_seconds: float | None


class LayerOpsTimed(msgspec.Struct, frozen=True, tag="layer_ops_timed"):
    """Times of all operations."""

    operations: list[OperationTime]
