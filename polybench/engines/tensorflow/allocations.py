"""What training steps of TensorFlow allocate: the memory events of its profiler, from its XPlane file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from polybench.core.document.resources import Allocation, Allocations

SOURCE = "TensorFlow's profiler"
HOST_COVERS = "tensors of 256 KiB and more; TensorFlow's CPU pool shows no smaller ones"
WITHOUT_ONEDNN = (
    "nothing where oneDNN is off, as TF_ENABLE_ONEDNN_OPTS=0 has it, and the default on CPUs without VNNI: "
    "then TensorFlow's CPU pool shows no tensor at all"
)
NATIVELY_UNSEEN = "tensors of 256 KiB and more, which TensorFlow's pool hands out again where oneDNN is on"
UNREADABLE = "nothing: this version of TensorFlow lacks the definition of its profile"
DEVICE_COVERS = "requests to TensorFlow's GPU pool, which keeps what is freed"

Found = tuple[str, int]
"""Name of an allocator, and the bytes that it was asked for."""


def allocations(train: Callable[[], object], steps: int, on_gpu: bool) -> Allocations:
    """Train and count.

    Args:
        train: trains `steps` steps, all done when it returns.
        steps: by which the counts are divided.
        on_gpu: the second record is that of the GPU.
    """
    found = _profiled(train)
    if found is None:
        unknown = Allocation(None, None, SOURCE, UNREADABLE)
        return Allocations(unknown, unknown if on_gpu else None)
    host = [size for allocator, size in found if not _is_gpu(allocator)]
    device = [size for allocator, size in found if _is_gpu(allocator)]
    host_covers = HOST_COVERS if host or onednn_is_on() else WITHOUT_ONEDNN
    return Allocations(
        _allocation(host, steps, host_covers), _allocation(device, steps, DEVICE_COVERS) if on_gpu else None
    )


def _allocation(sizes: list[int], steps: int, covers: str) -> Allocation:
    """Nothing seen is not nothing allocated: other allocators than TensorFlow's pools send no events."""
    if not sizes:
        return Allocation(None, None, SOURCE, covers)
    return Allocation(len(sizes) / steps, sum(sizes) / steps, SOURCE, covers)


def onednn_is_on() -> bool:
    """Whether the CPU's pool is oneDNN's, which is the one that sends events."""
    try:
        from tensorflow.python.util import _pywrap_util_port
    except ImportError:  # nothing public tells it
        return True
    return bool(_pywrap_util_port.IsMklEnabled())


def _is_gpu(allocator: str) -> bool:
    """`GPU_0_bfc`; the host's are `mklcpu`, `cpu` and, for pinned memory, `gpu_host_bfc`."""
    return allocator.startswith("GPU_")


def _profiled(train: Callable[[], object]) -> list[Found] | None:
    """Train, and answer every allocation that the profiler saw meanwhile; None if that cannot be read."""
    import tensorflow as tf

    try:
        from tensorflow.tsl.profiler.protobuf import xplane_pb2
    except ImportError:  # nothing public reads the file, and its definition has moved before
        return None
    # The allocators report from the host's side, also those of a GPU: its own tracer is not needed.
    options = tf.profiler.experimental.ProfilerOptions(device_tracer_level=0)
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder, options)
        try:
            train()
        finally:
            tf.profiler.experimental.stop()
        files = Path(folder).rglob("*.xplane.pb")
        spaces = [xplane_pb2.XSpace.FromString(file.read_bytes()) for file in files]
    return [found for space in spaces for found in _memory_events(space)]


def _memory_events(space: Any) -> Iterator[Found]:
    for plane in space.planes:
        stats = {key: metadata.name for key, metadata in plane.stat_metadata.items()}
        allocation = {
            key for key, metadata in plane.event_metadata.items() if metadata.name == "MemoryAllocation"
        }
        for line in plane.lines:
            for event in line.events:
                if event.metadata_id in allocation:
                    values = {stats[stat.metadata_id]: _value(stat, stats) for stat in event.stats}
                    # Not `allocation_bytes`, the chunk that served it, which depends on what else is free.
                    yield values["allocator_name"], values["requested_bytes"]


def _value(stat: Any, stats: dict[int, str]) -> Any:
    """The value of an XStat; texts may be kept once, among the names."""
    kind = stat.WhichOneof("value")
    value = getattr(stat, kind)
    return stats[value] if kind == "ref_value" else value
