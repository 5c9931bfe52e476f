"""What training steps of PyTorch allocate: on the host from its profiler, on a GPU from its allocator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybench.core.document.places import Places
from polybench.core.document.resources import Allocation, Allocations, DeviceAllocation
from polybench.engines.support.places import Allocated, Freed, add_up

_BACKWARD = "autograd::engine::evaluate_function: "  # before the name of each node of a backward pass
_MEMORY_EVENT = "[memory]"  # so torch.profiler names an allocation, and with negative bytes a deallocation


def allocations(train: Callable[[], object], steps: int, device: Any) -> Allocations:
    """Train and count.

    Args:
        train: trains `steps` steps, all done when it returns.
        steps: by which the counts are divided.
        device: a torch.device; the second record is that of a GPU.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    on_gpu = device.type == "cuda"
    before = torch.cuda.memory_stats(device) if on_gpu else {}
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        train()
    after = torch.cuda.memory_stats(device) if on_gpu else {}
    return Allocations(_host(profiler, steps), _device(before, after, steps) if on_gpu else None)


def places(run_step: Callable[[int], object], steps: range, device: Any) -> Places:
    """Train these steps, and tell which operators allocate: the outermost one, as its user wrote it.

    Args:
        run_step: trains one step, done when it returns.
        steps: their numbers.
        device: a torch.device, whose memory is looked at.
    """
    return Places(
        "torch.profiler",
        f"tensors in PyTorch's {'CUDA' if device.type == 'cuda' else 'CPU'} allocator, by outermost operator",
        add_up([_events(run_step, step, device) for step in steps]),
    )


def _events(run_step: Callable[[int], object], step: int, device: Any) -> list[Allocated | Freed]:
    """In the order of time; a tree of its own for each thread is what the profiler gives."""
    from torch._C._profiler import _EventType  # what torch.profiler's own memory profile is made from
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run_step(step)
    found: list[tuple[int, Allocated | Freed]] = []
    open_nodes = [(node, "") for node in profiler.profiler.kineto_results.experimental_event_tree()]
    while open_nodes:
        node, place = open_nodes.pop()
        if node.tag != _EventType.Allocation:
            open_nodes += [(child, place or node.name.removeprefix(_BACKWARD)) for child in node.children]
        elif (fields := node.extra_fields).device.type == device.type:
            made = Allocated(fields.ptr, place or "outside of operators", fields.alloc_size)
            found.append((node.start_time_ns, made if fields.alloc_size > 0 else Freed(fields.ptr)))
    return [event for _, event in sorted(found, key=lambda timed: timed[0])]


def _host(profiler: Any, steps: int) -> Allocation:
    from torch.autograd import DeviceType

    # `profiler.events()` has no memory events but those outside of operators.
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
    """The difference of two `torch.cuda.memory_stats`, which are totals since the process began."""

    def per_step(name: str) -> float | None:
        # Another allocator than PyTorch's own (`backend:cudaMallocAsync`) leaves its totals at zero, or out.
        return (after[name] - before.get(name, 0)) / steps if after.get(name) else None

    def driver_per_step(name: str) -> float | None:
        return (after[name] - before.get(name, 0)) / steps if name in after else None

    return DeviceAllocation(
        per_step("allocation.all.allocated"),
        # As asked for, like the host's. `allocated_bytes` is rounded up to blocks, by up to 1 MiB each.
        per_step("requested_bytes.all.allocated"),
        "torch.cuda.memory_stats",
        "requests to the caching allocator, which keeps what is freed and seldom asks the driver;"
        " a replayed CUDA graph makes none",
        allocated_bytes_per_step=per_step("allocated_bytes.all.allocated"),
        reserved_bytes=after.get("reserved_bytes.all.current"),
        driver_calls_per_step=driver_per_step("num_device_alloc"),
        retries_per_step=driver_per_step("num_alloc_retries"),
    )
