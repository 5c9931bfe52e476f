"""What training steps of TensorFlow allocate: the memory events of its profiler, from its XPlane file."""

from __future__ import annotations

import contextlib
import ctypes
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from polybench.core.document.places import Places
from polybench.core.document.resources import Allocation, Allocations, DeviceAllocation
from polybench.core.errors import Unavailable
from polybench.engines.support.places import Allocated, Freed, add_up

SOURCE = "TensorFlow's profiler"
POOL_COVERS = "tensors of 256 KiB and more; TensorFlow's CPU pool shows no smaller ones where oneDNN is on"
HOST_COVERS = (
    "tensors and buffers of operations in TensorFlow's CPU allocator, but not what Eigen takes by itself"
)
SILENT = "nothing: where oneDNN is off, this version of TensorFlow's CPU allocator shows no tensor"
NATIVELY_UNSEEN = "tensors of 256 KiB and more, which TensorFlow's pool hands out again where oneDNN is on"
UNREADABLE = "nothing: this version of TensorFlow lacks the definition of its profile"
DEVICE_COVERS = "requests to TensorFlow's GPU pool, which keeps what is freed"

_BEGIN, _END = "MemoryAllocation", "MemoryDeallocation"

_START_STATISTICS = "_ZN3tsl23EnableCPUAllocatorStatsEv"
_END_STATISTICS = "_ZN3tsl24DisableCPUAllocatorStatsEv"
"""`tsl::EnableCPUAllocatorStats()` and its opposite, in no header that Python sees. Where oneDNN is off, the
CPU's allocator sends events only while it keeps statistics:
https://github.com/openxla/xla/blob/main/xla/tsl/framework/cpu_allocator_impl.cc"""


class Event(NamedTuple):
    """An allocation, or the end of one, which has no operation."""

    begins: bool
    allocator: str
    requested: int
    given: int
    """The chunk that served it, which depends on what else is free; 0 on the CPU without oneDNN."""
    address: int
    operation: str


def allocations(train: Callable[[], object], steps: int, on_gpu: bool) -> Allocations:
    """Train and count.

    Args:
        train: trains `steps` steps, all done when it returns.
        steps: by which the counts are divided.
        on_gpu: the second record is that of the GPU.
    """
    found = profiled(train)
    if found is None:
        unknown = (None, None, SOURCE, UNREADABLE)
        return Allocations(Allocation(*unknown), DeviceAllocation(*unknown) if on_gpu else None)
    made = [event for event in found if event.begins]
    host = [event.requested for event in made if not _is_gpu(event.allocator)]
    device = [event for event in made if _is_gpu(event.allocator)]
    return Allocations(
        _allocation(host, steps, host_covers(seen=bool(host))),
        _device(device, steps) if on_gpu else None,
    )


def _device(made: list[Event], steps: int) -> DeviceAllocation:
    if not made:
        return DeviceAllocation(None, None, SOURCE, DEVICE_COVERS)
    return DeviceAllocation(
        len(made) / steps,
        sum(event.requested for event in made) / steps,
        SOURCE,
        DEVICE_COVERS,
        allocated_bytes_per_step=sum(event.given for event in made) / steps,
    )


def places(run_step: Callable[[int], object], steps: range, on_gpu: bool) -> Places:
    """Train these steps, and tell which operations allocate, by their names in the graph.

    Args:
        run_step: trains one step, done when it returns.
        steps: their numbers.
        on_gpu: whether the GPU's memory is looked at, instead of the host's.

    Raises:
        Unavailable: this version of TensorFlow shows no allocation.
    """
    traces = [_events(run_step, step, on_gpu) for step in steps]
    covers = DEVICE_COVERS if on_gpu else host_covers(seen=any(traces))
    if not any(traces):
        raise Unavailable(f"its profiler shows {covers}", "another version of TensorFlow")
    return Places(SOURCE, covers, add_up(traces))


def _events(run_step: Callable[[int], object], step: int, on_gpu: bool) -> list[Allocated | Freed]:
    found = profiled(lambda: run_step(step)) or ()
    return [
        Allocated(event.address, event.operation or "outside of operations", event.requested)
        if event.begins
        else Freed(event.address)
        for event in found
        if _is_gpu(event.allocator) == on_gpu
    ]


def host_covers(*, seen: bool) -> str:
    """What the host's events are, in words; `seen` says that there were any."""
    if onednn_is_on():
        return POOL_COVERS
    return HOST_COVERS if seen else SILENT


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


def profiled(train: Callable[[], object]) -> list[Event] | None:
    """Train, and answer what the profiler saw of allocations meanwhile; None if that cannot be read.

    In order of time, over all threads.
    """
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
            with _cpu_allocator_keeps_statistics():
                train()
        finally:
            tf.profiler.experimental.stop()
        files = Path(folder).rglob("*.xplane.pb")
        spaces = [xplane_pb2.XSpace.FromString(file.read_bytes()) for file in files]
    # Threads have lines of their own.
    return [event for _, event in sorted(timed for space in spaces for timed in _memory_events(space))]


@contextlib.contextmanager
def _cpu_allocator_keeps_statistics() -> Iterator[None]:
    import tensorflow as tf

    try:
        library = ctypes.CDLL(str(Path(tf.sysconfig.get_lib()) / "libtensorflow_framework.so.2"))
        start, end = library[_START_STATISTICS], library[_END_STATISTICS]
    except (OSError, AttributeError):  # another version: then nothing is seen, which is said
        yield
        return
    start()
    try:
        yield
    finally:
        end()


def _memory_events(space: Any) -> Iterator[tuple[int, Event]]:
    """Picoseconds, and what happened then."""
    for plane in space.planes:
        stats = {key: metadata.name for key, metadata in plane.stat_metadata.items()}
        names = {key: metadata.name for key, metadata in plane.event_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                if (name := names[event.metadata_id]) in (_BEGIN, _END):
                    values = {stats[stat.metadata_id]: _value(stat, stats) for stat in event.stats}
                    yield (
                        1000 * line.timestamp_ns + event.offset_ps,
                        Event(
                            name == _BEGIN,
                            values["allocator_name"],
                            values["requested_bytes"],
                            values["allocation_bytes"],
                            values["addr"],
                            values.get("tf_op", ""),
                        ),
                    )


def _value(stat: Any, stats: dict[int, str]) -> Any:
    """The value of an XStat; texts may be kept once, among the names."""
    kind = stat.WhichOneof("value")
    value = getattr(stat, kind)
    return stats[value] if kind == "ref_value" else value
