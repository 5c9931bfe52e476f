"""TensorFlow code that the engines tf and keras share: allocations, build details, thread pools, gradients.

The memory events are those in the XPlane file of TensorFlow's profiler.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from polybench.engines.shared.allocation_sites import AllocEvent, FreeEvent, aggregate
from polybench.errors import EngineUnavailable
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocation, Allocations, DeviceAllocation

SOURCE = "TensorFlow's profiler"
POOL_COVERAGE = "tensors of 256 KiB and more; with oneDNN, TensorFlow's CPU pool reports no smaller ones"
HOST_COVERAGE = "tensors and buffers of operations in TensorFlow's CPU allocator; not Eigen's own allocations"
NO_EVENTS = "nothing: without oneDNN, the CPU allocator of this TensorFlow version reports no tensors"
UNREADABLE_PROFILE = "nothing: this TensorFlow version lacks the definition of its profile format"
DEVICE_COVERAGE = "requests to TensorFlow's GPU pool, which retains freed memory"

_BEGIN, _END = "MemoryAllocation", "MemoryDeallocation"

_START_STATISTICS = "_ZN3tsl23EnableCPUAllocatorStatsEv"
_END_STATISTICS = "_ZN3tsl24DisableCPUAllocatorStatsEv"
"""`tsl::EnableCPUAllocatorStats()` and its counterpart, which Python does not expose. Without oneDNN, the CPU
allocator emits events only while its statistics are enabled:
https://github.com/openxla/xla/blob/main/xla/tsl/framework/cpu_allocator_impl.cc"""

CUDNN_AUTOTUNE = "TF_CUDNN_USE_AUTOTUNE"  # TensorFlow's default is to benchmark cuDNN's algorithms


class MemoryEvent(NamedTuple):
    """Allocation or deallocation; a deallocation has no operation."""

    is_allocation: bool
    allocator: str
    requested_bytes: int
    allocated_bytes: int
    """Size of the chunk that served the request; 0 on the CPU without oneDNN."""
    address: int
    operation: str


def count_allocations(train: Callable[[], object], steps: int, on_gpu: bool) -> Allocations:
    """Train `steps` steps with `train`, and count allocations per step; a GPU's are a second record."""
    events = profile_memory_events(train)
    if events is None:
        unknown = (None, None, SOURCE, UNREADABLE_PROFILE)
        return Allocations(Allocation(*unknown), DeviceAllocation(*unknown) if on_gpu else None)
    allocated = [event for event in events if event.is_allocation]
    host = [event.requested_bytes for event in allocated if not _is_gpu(event.allocator)]
    device = [event for event in allocated if _is_gpu(event.allocator)]
    return Allocations(
        _allocation(host, steps, host_coverage(seen=bool(host))), _device(device, steps) if on_gpu else None
    )


def _device(events: list[MemoryEvent], steps: int) -> DeviceAllocation:
    if not events:
        return DeviceAllocation(None, None, SOURCE, DEVICE_COVERAGE)
    return DeviceAllocation(
        len(events) / steps,
        sum(event.requested_bytes for event in events) / steps,
        SOURCE,
        DEVICE_COVERAGE,
        allocated_bytes_per_step=sum(event.allocated_bytes for event in events) / steps,
    )


def find_allocation_sites(run_step: Callable[[int], object], steps: range, on_gpu: bool) -> AllocationProfile:
    """Train these steps one by one, and find the operations that allocate, by their names in the graph."""
    traces = [_events(run_step, step, on_gpu) for step in steps]
    coverage = DEVICE_COVERAGE if on_gpu else host_coverage(seen=any(traces))
    if not any(traces):
        raise EngineUnavailable(f"its profiler shows {coverage}", "use another version of TensorFlow")
    return AllocationProfile(SOURCE, coverage, aggregate(traces))


def _events(run_step: Callable[[int], object], step: int, on_gpu: bool) -> list[AllocEvent | FreeEvent]:
    events = profile_memory_events(lambda: run_step(step)) or ()
    return [
        AllocEvent(event.address, event.operation or "outside of operations", event.requested_bytes)
        if event.is_allocation
        else FreeEvent(event.address)
        for event in events
        if _is_gpu(event.allocator) == on_gpu
    ]


def host_coverage(*, seen: bool) -> str:
    """Describe the coverage of the host's events; `seen` is True if there were any."""
    if uses_onednn():
        return POOL_COVERAGE
    return HOST_COVERAGE if seen else NO_EVENTS


def _allocation(sizes: list[int], steps: int, coverage: str) -> Allocation:
    """Make the record; without events it is unknown, since allocators other than the pools emit none."""
    if not sizes:
        return Allocation(None, None, SOURCE, coverage)
    return Allocation(len(sizes) / steps, sum(sizes) / steps, SOURCE, coverage)


def uses_onednn() -> bool:
    """Return True if the CPU pool is oneDNN's, which emits events."""
    try:
        from tensorflow.python.util import _pywrap_util_port
    except ImportError:  # TensorFlow has no public API for it
        return True
    return bool(_pywrap_util_port.IsMklEnabled())


def check_native_allocations() -> None:
    """Raise EngineUnavailable if a pool hides tensors from a count of native allocations."""
    if uses_onednn() and os.environ.get("TF_ONEDNN_USE_SYSTEM_ALLOCATOR") != "1":
        raise EngineUnavailable(
            "TensorFlow's oneDNN pool hides tensors of 256 KiB and more",
            "set TF_ONEDNN_USE_SYSTEM_ALLOCATOR=1 for this process",
        )


def _is_gpu(allocator: str) -> bool:
    """Return True for `GPU_0_bfc`; the host's are `mklcpu`, `cpu` and, for pinned memory, `gpu_host_bfc`."""
    return allocator.startswith("GPU_")


def profile_memory_events(train: Callable[[], object]) -> list[MemoryEvent] | None:
    """Train, and return the profiler's memory events of all threads in order of time; None if unreadable."""
    try:
        from tensorflow.tsl.profiler.protobuf import xplane_pb2
    except ImportError:  # TensorFlow has no public reader, and the definition has moved before
        return None
    # All allocators, those of a GPU included, report on the host, so the device tracer is not needed.
    options = tf.profiler.experimental.ProfilerOptions(device_tracer_level=0)
    with tempfile.TemporaryDirectory() as folder:
        tf.profiler.experimental.start(folder, options)
        try:
            with _cpu_allocator_statistics():
                train()
        finally:
            tf.profiler.experimental.stop()
        files = Path(folder).rglob("*.xplane.pb")
        spaces = [xplane_pb2.XSpace.FromString(file.read_bytes()) for file in files]
    # Each thread has its own line of events.
    return [event for _, event in sorted(timed for space in spaces for timed in _memory_events(space))]


@contextlib.contextmanager
def _cpu_allocator_statistics() -> Iterator[None]:
    try:
        library = ctypes.CDLL(str(Path(tf.sysconfig.get_lib()) / "libtensorflow_framework.so.2"))
        start, end = library[_START_STATISTICS], library[_END_STATISTICS]
    except (OSError, AttributeError):  # another version: no events, which the coverage reports
        yield
        return
    start()
    try:
        yield
    finally:
        end()


def _memory_events(space: Any) -> Iterator[tuple[int, MemoryEvent]]:
    """Yield memory events with their times in picoseconds."""
    for plane in space.planes:
        stats = {key: metadata.name for key, metadata in plane.stat_metadata.items()}
        names = {key: metadata.name for key, metadata in plane.event_metadata.items()}
        for line in plane.lines:
            for event in line.events:
                if (name := names[event.metadata_id]) in (_BEGIN, _END):
                    values = {stats[stat.metadata_id]: _value(stat, stats) for stat in event.stats}
                    yield (
                        1000 * line.timestamp_ns + event.offset_ps,
                        MemoryEvent(
                            name == _BEGIN,
                            values["allocator_name"],
                            values["requested_bytes"],
                            values["allocation_bytes"],
                            values["addr"],
                            values.get("tf_op", ""),
                        ),
                    )


def _value(stat: Any, stats: dict[int, str]) -> Any:
    """Return the value of an XStat; strings may be stored once, among the names."""
    kind = stat.WhichOneof("value")
    value = getattr(stat, kind)
    return stats[value] if kind == "ref_value" else value


def build_info() -> dict[str, str]:
    """Return compiler, CUDA and cuDNN versions, and cuDNN autotuning."""
    info = tf.sysconfig.get_build_info()
    build = {key: str(info[key]) for key in ("cpu_compiler", "cuda_version", "cudnn_version") if key in info}
    if tf.test.is_built_with_cuda():
        build["cudnn_autotune"] = "on" if os.environ.get(CUDNN_AUTOTUNE, "1") == "1" else "off"
    return build


def set_threads(threads: int) -> None:
    """Set the sizes of the intra-op and inter-op pools."""
    pools = tf.config.threading
    # Once the process has computed something, the sizes are fixed; then they are already correct.
    if pools.get_intra_op_parallelism_threads() != threads:
        pools.set_intra_op_parallelism_threads(threads)
    if pools.get_inter_op_parallelism_threads() != threads:
        pools.set_inter_op_parallelism_threads(threads)


def make_loss_and_gradients(model: Any, loss_function: Any) -> Callable[[Any, Any], tuple[Any, Any]]:
    """Make the function (images, labels) -> loss and gradients of a Keras model, as in a training step."""

    def loss_and_gradients(images: Any, labels: Any) -> tuple[Any, Any]:
        with tf.GradientTape() as tape:
            loss = loss_function(labels, model(images, training=True))
        return loss, tape.gradient(loss, model.trainable_variables)

    return loss_and_gradients
