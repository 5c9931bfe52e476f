"""What training steps of PyTorch allocate: on the host from its profiler, on a GPU from its allocator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybench.core.document.resources import Allocation, Allocations

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


def _device(before: dict[str, int], after: dict[str, int], steps: int) -> Allocation:
    """The difference of two `torch.cuda.memory_stats`, which are totals since the process began."""

    def per_step(name: str) -> float | None:
        # Another allocator than PyTorch's own (`backend:cudaMallocAsync`) leaves its totals at zero, or out.
        return (after[name] - before.get(name, 0)) / steps if after.get(name) else None

    return Allocation(
        per_step("allocation.all.allocated"),
        # As asked for, like the host's. `allocated_bytes` is rounded up to blocks, by up to 1 MiB each.
        per_step("requested_bytes.all.allocated"),
        "torch.cuda.memory_stats",
        "requests to the caching allocator, which keeps what is freed and seldom asks the driver;"
        " a replayed CUDA graph makes none",
    )
