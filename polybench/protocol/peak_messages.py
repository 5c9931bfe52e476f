"""Messages about the peak throughput of a machine; see `protocol.messages`."""

from __future__ import annotations

import msgspec

from polybench.networks.timed_layers import TimedLayer


class StandaloneOp(msgspec.Struct, frozen=True):
    """A layer with its own batch size; it need not belong to the job's model."""

    layer: TimedLayer
    batch_size: int


class BuildStandaloneOps(msgspec.Struct, frozen=True, tag="build_standalone_ops"):
    """Build these layers with random tensors; `TimeLayerOps` times them. Response: LayerOpsBuilt."""

    operations: list[StandaloneOp]


class TimeNumpy(msgspec.Struct, frozen=True, tag="time_numpy"):
    """Time NumPy's float32 products of square matrices, and the STREAM triad. Response: NumpyTimed.

    This request needs no engine. The worker runs each `repeats` times. Each array of the triad has
    `triad_bytes` bytes; null skips the triad.
    """

    sizes: tuple[int, ...]
    triad_bytes: int | None
    threads: int
    repeats: int


class NumpyTimed(msgspec.Struct, frozen=True, tag="numpy_timed"):
    """Median seconds of the product of each size, and of the triad."""

    products: list[float]
    triad: float | None
