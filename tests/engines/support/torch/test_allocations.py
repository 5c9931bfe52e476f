"""The totals of PyTorch's CUDA allocator, as `torch.cuda.memory_stats` gives them; no GPU is needed."""

from __future__ import annotations

from polybench.core.document.resources import DeviceAllocation
from polybench.engines.support.torch.allocations import _device

BEFORE = {
    "allocation.all.allocated": 100,
    "requested_bytes.all.allocated": 1000,
    "allocated_bytes.all.allocated": 2048,
    "reserved_bytes.all.current": 1 << 20,
    "num_device_alloc": 7,
    "num_alloc_retries": 0,
}


def test_totals_are_taken_off_and_what_is_held_is_as_it_is() -> None:
    after = {name: 3 * value for name, value in BEFORE.items()}
    found = _device(BEFORE, after, 2)
    assert (found.count_per_step, found.bytes_per_step) == (100, 1000)
    assert (found.allocated_bytes_per_step, found.reserved_bytes) == (2048, 3 << 20)
    assert (found.driver_calls_per_step, found.retries_per_step) == (7, 0)


def test_another_allocator_that_counts_nothing_has_no_numbers() -> None:
    found = _device({}, {"allocation.all.allocated": 0}, 2)
    assert found == DeviceAllocation(None, None, found.source, found.covers)
