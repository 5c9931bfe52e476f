"""Allocations of PyTorch's training steps: on the host from its profiler, on a GPU from its allocator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybench.engines.shared.allocation_sites import AllocEvent, FreeEvent, aggregate
from polybench.schema.measurements import AllocationProfile
from polybench.schema.resources import Allocation, Allocations, DeviceAllocation

_BACKWARD = "autograd::engine::evaluate_function: "  # prefix of the nodes of a backward pass
_MEMORY_EVENT = "[memory]"  # torch.profiler's name of an allocation; negative bytes mean a deallocation


def count_allocations(train: Callable[[], object], steps: int, device: Any) -> Allocations:
    """Train, and count allocations per step.

    Args:
        train: trains `steps` steps and returns when all have finished.
        steps: number of steps.
        device: torch.device; a GPU's allocations are a second record.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device.type == "cuda"
    before = torch.cuda.memory_stats(device) if on_gpu else {}
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        train()
    after = torch.cuda.memory_stats(device) if on_gpu else {}
    return Allocations(_host(profiler, steps), _device(before, after, steps) if on_gpu else None)


def find_allocation_sites(run_step: Callable[[int], object], steps: range, device: Any) -> AllocationProfile:
    """Train these steps, and find the outermost operators that allocate.

    Args:
        run_step: trains one step and returns when it has finished.
        steps: step numbers.
        device: torch.device whose memory is traced.
    """
    return AllocationProfile(
        "torch.profiler",
        f"tensors in PyTorch's {'CUDA' if device.type == 'cuda' else 'CPU'} allocator, by outermost operator",
        aggregate([_events(run_step, step, device) for step in steps]),
    )


def _events(run_step: Callable[[int], object], step: int, device: Any) -> list[AllocEvent | FreeEvent]:
    """Return the events of a step in order of time; the profiler has one tree for each thread."""
    from torch._C._profiler import _EventType  # the source of torch.profiler's own memory profile
    from torch.profiler import ProfilerActivity, profile

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
    from torch.autograd import DeviceType

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

    def per_step(name: str) -> float | None:
        # With an allocator other than PyTorch's own (`backend:cudaMallocAsync`), totals are zero or missing.
        return (after[name] - before.get(name, 0)) / steps if after.get(name) else None

    def driver_per_step(name: str) -> float | None:
        return (after[name] - before.get(name, 0)) / steps if name in after else None

    return DeviceAllocation(
        per_step("allocation.all.allocated"),
        # Requested bytes, as on the host. `allocated_bytes` is rounded up to blocks, by up to 1 MiB each.
        per_step("requested_bytes.all.allocated"),
        "torch.cuda.memory_stats",
        "requests to the caching allocator, which retains freed memory and seldom calls the driver;"
        " a replayed CUDA graph makes none",
        allocated_bytes_per_step=per_step("allocated_bytes.all.allocated"),
        reserved_bytes=after.get("reserved_bytes.all.current"),
        driver_calls_per_step=driver_per_step("num_device_alloc"),
        retries_per_step=driver_per_step("num_alloc_retries"),
    )
