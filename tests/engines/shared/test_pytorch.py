"""Totals of PyTorch's CUDA allocator from `torch.cuda.memory_stats`; needs no GPU."""

from __future__ import annotations

from unittest.mock import DEFAULT, call, patch

from polybench.schema.resources import DeviceAllocation
from tests.engines.engine_fixtures import EngineFixture, in_process_of

BEFORE = {
    "allocation.all.allocated": 100,
    "requested_bytes.all.allocated": 1000,
    "allocated_bytes.all.allocated": 2048,
    "reserved_bytes.all.current": 1 << 20,
    "num_device_alloc": 7,
    "num_alloc_retries": 0,
}


@in_process_of("torch")
def test_totals_are_subtracted_but_reserved_bytes_are_current(fixture: EngineFixture) -> None:
    from polybench.engines.shared.pytorch import _device

    after = {name: 3 * value for name, value in BEFORE.items()}
    allocation = _device(BEFORE, after, 2)
    assert (allocation.count_per_step, allocation.bytes_per_step) == (100, 1000)
    assert (allocation.allocated_bytes_per_step, allocation.reserved_bytes) == (2048, 3 << 20)
    assert (allocation.driver_calls_per_step, allocation.retries_per_step) == (7, 0)


@in_process_of("torch")
def test_an_allocator_without_statistics_has_no_numbers(fixture: EngineFixture) -> None:
    from polybench.engines.shared.pytorch import _device

    zeros = dict.fromkeys(BEFORE, 0)  # as with cudaMallocAsync, which knows only what is reserved
    for before, after in (({}, {"allocation.all.allocated": 0}), (zeros, zeros | {"reserved_bytes.all.current": 5})):
        allocation = _device(before, after, 2)
        reserved = after.get("reserved_bytes.all.current")
        expected = DeviceAllocation(None, None, allocation.source, allocation.coverage, reserved_bytes=reserved)
        assert allocation == expected


@in_process_of("torch")
def test_both_thread_pools_get_the_size_of_the_study(fixture: EngineFixture) -> None:
    import torch

    from polybench.engines.shared.pytorch import set_threads

    names = ("set_num_threads", "set_num_interop_threads")
    with patch.multiple(torch, get_num_interop_threads=lambda: 2, **dict.fromkeys(names, DEFAULT)) as pools:
        for threads in (3, 2):  # the size of the second pool can be set only once
            set_threads(threads)
    assert [pools[name].call_args_list for name in names] == [[call(3), call(2)], [call(3)]]
