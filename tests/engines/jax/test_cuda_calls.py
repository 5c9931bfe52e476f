"""CUDA path of the JAX engine without a GPU: device lookup and allocator statistics.

The second of two CPU devices stands in for the GPU: arrays are placed on it, and the step runs there.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock, create_autospec, patch

import pytest

from polybench.engines.shared import frameworks
from polybench.errors import EngineUnavailable
from tests.engines.engine_fixtures import Check, EngineFixture, in_process_of

TWO_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"}


def with_two_devices(check: Check) -> Any:
    """Turn the check into a test that runs in a JAX process with two devices."""
    return in_process_of("jax", **TWO_DEVICES)(check)


@contextlib.contextmanager
def fake_gpu(plugin: bool = True) -> Iterator[Mock]:
    """Make the CPU's second device available as `cuda`; yields the mock of `jax.devices`."""
    import jax

    from polybench.engines.jax import device

    real = jax.devices

    def devices(backend: Any = None) -> list[Any]:
        if backend == "cuda" and not plugin:
            raise RuntimeError("Unknown backend cuda")  # JAX's message
        return real("cpu")[1:] if backend == "cuda" else real(backend)

    with (
        patch.object(jax, "devices", autospec=True, side_effect=devices) as mock,
        patch.object(frameworks, "has_cuda_driver", lambda: True),
        patch.object(device, "_has_cuda_plugin", lambda: plugin),
    ):
        yield mock


@pytest.mark.cuda_level("jax", "computed on a stand-in")
@with_two_devices
def test_weights_batches_and_step_are_on_the_requested_device(fixture: EngineFixture) -> None:
    import jax

    with fake_gpu() as devices:
        fixture.build(device="cuda")
        second = jax.devices("cpu")[1]
        fixture.engine.run_steps(0, 2)
        engine: Any = fixture.engine
        arrays = jax.tree.leaves((engine._state, engine._batches, engine._loss))
        assert {device for array in arrays for device in array.devices()} == {second}
        assert fixture.engine.probe().devices == ("cpu", "cuda:0")
    devices.assert_any_call("cuda")


@pytest.mark.cuda_level("jax", "type-checked")
@with_two_devices
def test_allocations_and_peak_memory_come_from_the_device_allocator(fixture: EngineFixture) -> None:
    import jax

    with fake_gpu():
        fixture.build(device="cuda")
        engine: Any = fixture.engine
        engine.run_steps(0, 1)
        real_device = engine._device
        # Statistics as in jaxlib's GPU client, with the signatures of a real device.
        engine._device = create_autospec(jax.Device, instance=True)
        stats = [{"num_allocs": n, "peak_bytes_in_use": 12_345, "bytes_in_use": 123} for n in (10, 16, 0, 0)]
        engine._device.memory_stats.side_effect = stats
        allocations = engine.count_allocations(0, 2)
        assert (allocations.host, allocations.device.count_per_step) == (None, 3.0)
        assert allocations.device.bytes_per_step > 0
        assert engine.device_peak_bytes() == 12_345
        assert engine.device_bytes_in_use() == 123
        engine._device = real_device


@with_two_devices
def test_a_gpu_without_the_cuda_plugin_is_unavailable(fixture: EngineFixture) -> None:
    with fake_gpu(plugin=False), pytest.raises(EngineUnavailable, match="does not support CUDA"):
        fixture.build(device="cuda")


@with_two_devices
def test_each_bug_in_cuda_code_is_found(fixture: EngineFixture) -> None:
    from tests.engines.jax.cuda_bugs import FOUND_BY

    survivors = []
    for bug, check in FOUND_BY.items():
        injected = copy.copy(fixture)
        injected.engine = bug()
        try:
            check(injected)
        except (AssertionError, AttributeError):  # an array in NumPy has no devices
            continue
        survivors.append(bug.__name__)
    assert survivors == []
