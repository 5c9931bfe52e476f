"""The CUDA path of JAX's engine without a GPU: finding the device, and what its allocator says.

Of two devices of the CPU the second plays the GPU: arrays are put on it, and the step runs there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock, create_autospec, patch

import pytest

from polybench.core.errors import Unavailable
from polybench.engines.support import frameworks
from tests.engines.lab import Check, Lab, in_process_of

TWO = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2 --xla_backend_optimization_level=0"}


def with_two(check: Check) -> Any:
    """A test of the check in a process of JAX that has two devices."""
    return in_process_of("jax", **TWO)(check)


@contextlib.contextmanager
def gpu_stand_in(plugin: bool = True) -> Iterator[Mock]:
    """JAX with this CPU's second device by the name of `cuda`; `jax.devices` is watched."""
    import jax

    from polybench.engines.jax import device

    real = jax.devices

    def devices(backend: Any = None) -> list[Any]:
        if backend == "cuda" and not plugin:
            raise RuntimeError("Unknown backend cuda")  # as JAX says it
        return real("cpu")[1:] if backend == "cuda" else real(backend)

    with (
        patch.object(jax, "devices", autospec=True, side_effect=devices) as watched,
        patch.object(frameworks, "driver_is_there", lambda: True),
        patch.object(device, "_has_cuda_plugin", lambda: plugin),
    ):
        yield watched


@with_two
def test_weights_batches_and_step_are_on_the_device_that_was_asked_for(lab: Lab) -> None:
    import jax

    with gpu_stand_in() as watched:
        lab.build(device="cuda")
        second = jax.devices("cpu")[1]
        lab.engine.run_steps(0, 2)
        engine: Any = lab.engine
        arrays = jax.tree.leaves((engine._state, engine._batches, engine._loss))
        assert {device for array in arrays for device in array.devices()} == {second}
        assert lab.engine.probe().devices == ("cpu", "cuda:0")
    watched.assert_any_call("cuda")


@with_two
def test_precision_is_set_and_not_inherited(lab: Lab) -> None:
    import jax

    for precision, expected in (("tf32", "tensorfloat32"), ("fp32", "float32")):
        with gpu_stand_in():
            lab.build(device="cuda", precision=precision)
        assert jax.config.jax_default_matmul_precision == expected


@with_two
def test_allocations_and_peak_are_those_of_the_devices_allocator(lab: Lab) -> None:
    import jax

    with gpu_stand_in():
        lab.build(device="cuda")
        engine: Any = lab.engine
        engine.run_steps(0, 1)
        own = engine._device
        # As jaxlib's GPU client has them, and a device's own signatures.
        engine._device = create_autospec(jax.Device, instance=True)
        stats = [{"num_allocs": n, "peak_bytes_in_use": 12_345} for n in (10, 16, 0)]
        engine._device.memory_stats.side_effect = stats
        found = engine.count_allocations(0, 2)
        assert (found.host, found.device.count_per_step) == (None, 3.0)
        assert found.device.bytes_per_step > 0
        assert engine.device_peak_bytes() == 12_345
        engine._device = own


@with_two
def test_a_gpu_that_jax_has_no_plugin_for_is_unavailable(lab: Lab) -> None:
    with gpu_stand_in(plugin=False), pytest.raises(Unavailable, match="has no CUDA"):
        lab.build(device="cuda")
