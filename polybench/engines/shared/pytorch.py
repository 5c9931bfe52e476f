"""PyTorch code that the engines torch and keras share: allocations, build details, thread pools.

This module imports torch. Allocations on the host are those of PyTorch's profiler; on a GPU, those of its allocator.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from polybench.engines.shared.allocation_sites import AllocEvent, FreeEvent, aggregate
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocation, Allocations, DeviceAllocation

_BACKWARD = "autograd::engine::evaluate_function: "  # prefix of the nodes of a backward pass
_MEMORY_EVENT = "[memory]"  # torch.profiler's name of an allocation; negative bytes mean a deallocation


def count_allocations(train: Callable[[], object], steps: int, device: Any) -> Allocations:
    """Train `steps` steps with `train`, and count allocations per step; a GPU's are a second record."""
    on_gpu = device.type == "cuda"
    before = torch.cuda.memory_stats(device) if on_gpu else {}
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        train()
    after = torch.cuda.memory_stats(device) if on_gpu else {}
    return Allocations(_host(profiler, steps), _device(before, after, steps) if on_gpu else None)


def find_allocation_sites(run_step: Callable[[int], object], steps: range, device: Any) -> AllocationProfile:
    """Train these steps one by one, and find the outermost operators that allocate on the device."""
    return AllocationProfile(
        "torch.profiler",
        f"tensors in PyTorch's {'CUDA' if device.type == 'cuda' else 'CPU'} allocator, by outermost operator",
        aggregate([_events(run_step, step, device) for step in steps]),
    )


def _events(run_step: Callable[[int], object], step: int, device: Any) -> list[AllocEvent | FreeEvent]:
    """Return the events of a step in order of time; the profiler has one tree for each thread."""
    from torch._C._profiler import _EventType  # private: the source of torch.profiler's own memory profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run_step(step)
    timed_events: list[tuple[int, AllocEvent | FreeEvent]] = []
    open_nodes = [(node, "") for node in profiler.profiler.kineto_results.experimental_event_tree()]
    while open_nodes:
        node, site = open_nodes.pop()
        if node.tag != _EventType.Allocation:
            open_nodes += [(child, site or node.name.removeprefix(_BACKWARD)) for child in node.children]
        elif (fields := node.extra_fields).device.type == device.type:
            allocation = AllocEvent(fields.ptr, site or "outside of operators", fields.alloc_size)
            event = allocation if fields.alloc_size > 0 else FreeEvent(fields.ptr)
            timed_events.append((node.start_time_ns, event))
    return [event for _, event in sorted(timed_events, key=lambda timed: timed[0])]


def _host(profiler: Any, steps: int) -> Allocation:
    # `profiler.events()` only has memory events outside of operators.
    sizes = [
        event.nbytes()
        for event in profiler.profiler.kineto_results.events()
        if event.name() == _MEMORY_EVENT and event.device_type() == DeviceType.CPU and event.nbytes() > 0
    ]
    return Allocation(
        len(sizes) / steps,
        sum(sizes) / steps,
        "torch.profiler",
        "tensors, and oneDNN's reordered copies of them, in PyTorch's CPU allocator",
    )


def _device(before: dict[str, int], after: dict[str, int], steps: int) -> DeviceAllocation:
    """Subtract two `torch.cuda.memory_stats`, which are totals since the process started."""
    # With an allocator other than PyTorch's own (`backend:cudaMallocAsync`), totals are zero or missing.
    counts = bool(after.get("allocation.all.allocated"))

    def per_step(name: str) -> float | None:
        return (after[name] - before.get(name, 0)) / steps if counts and name in after else None

    return DeviceAllocation(
        per_step("allocation.all.allocated"),
        # Requested bytes, as on the host. `allocated_bytes` is rounded up to blocks, by up to 1 MiB each.
        per_step("requested_bytes.all.allocated"),
        "torch.cuda.memory_stats",
        "requests to the caching allocator, which retains freed memory and seldom calls the driver;"
        " a replayed CUDA graph makes none",
        allocated_bytes_per_step=per_step("allocated_bytes.all.allocated"),
        reserved_bytes=after.get("reserved_bytes.all.current"),
        driver_calls_per_step=per_step("num_device_alloc"),
        retries_per_step=per_step("num_alloc_retries"),
    )


def build_info() -> dict[str, str]:
    """Return libraries, thread backend, CPU capability, and CUDA and cuDNN versions."""
    config = torch.__config__.show()
    patterns = {
        "blas": r"BLAS_INFO=(\w+)",
        "mkl": r"oneAPI Math Kernel Library Version (\S+)",
        "onednn": r"MKL-DNN v(\S+)",
        "openmp": r"OpenMP (\d+)",
    }
    build = {name: match[1] for name, pattern in patterns.items() if (match := re.search(pattern, config))}
    backend = re.search(r"ATen parallel backend: (\S+)", torch.__config__.parallel_info())
    if backend:
        build["parallel_backend"] = backend[1]
    build["cpu_capability"] = torch.backends.cpu.get_cpu_capability()
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        build["triton"] = importlib.metadata.version("triton")  # not imported: plain steps do not use it
    if torch.version.cuda:
        build["cuda"] = torch.version.cuda
        build["cudnn"] = str(torch.backends.cudnn.version())
        build["cudnn_autotune"] = "on" if torch.backends.cudnn.benchmark else "off"
    return build


def set_threads(threads: int) -> None:
    """Set the sizes of the intra-op and inter-op pools."""
    torch.set_num_threads(threads)
    # The inter-op pool can be set only once in a process, even to its current size.
    if torch.get_num_interop_threads() != threads:
        torch.set_num_interop_threads(threads)
