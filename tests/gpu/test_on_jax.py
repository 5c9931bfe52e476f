"""JAX's CUDA path on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from polybench.engines.base import Array
from tests.engines import pipeline_checks
from tests.gpu.lab import GpuLab, on_gpu
from tests.gpu.pooling import rule_of
from tests.gpu.precision import Operation, off_and_on

pytestmark = pytest.mark.gpu


@on_gpu("jax")
def test_tf32_of_jax_is_really_off_and_really_on(lab: GpuLab) -> str:
    import jax
    from jax import lax, numpy

    from polybench.engines.jax.device import find_device, set_precision

    device = find_device("cuda")

    def computed(operation: Callable[..., Any]) -> Operation:
        def compute(dtype: str, tf32: bool, *given: Array) -> Array:
            set_precision(dtype, "tf32" if tf32 else "fp32")
            placed = (jax.device_put(one.astype(dtype), device) for one in given)
            return np.asarray(jax.jit(operation)(*placed), np.float64)

        return compute

    convolve = computed(lambda x, w: lax.conv(x, w, (1, 1), "VALID"))
    return off_and_on(product=computed(numpy.matmul), convolution=convolve)


@on_gpu("jax")
def test_a_block_of_jax_ends_when_its_steps_have(lab: GpuLab) -> str:
    """Twice the steps take about twice as long: where only the host's part was timed, it is far less."""
    import jax

    lab.build_large(4096)
    engine: Any = lab.engine
    engine.run_steps(0, 8)
    seconds = min(engine.run_steps(0, 16) for _ in range(5))
    jax.block_until_ready(engine._state)
    images, labels = engine._batches[0]
    dispatched = engine._functions.step(engine._state, images, labels, {})
    assert not dispatched[1].is_ready()  # a step does run on after its call
    engine._state, engine._loss = jax.block_until_ready(dispatched)
    one = min(engine.run_steps(0, 1) for _ in range(5))
    assert seconds > 8 * one
    return f"16 steps {seconds * 1e3:.2f} ms, one {one * 1e3:.2f} ms"


@on_gpu("jax")
def test_the_batches_of_jaxs_pipeline_are_those_of_the_decisions(lab: GpuLab) -> str:
    pipeline_checks.gives_the_batches_of_the_decisions_whoever_prepares_them(lab)
    pipeline_checks.gives_way_to_preloaded_batches(lab)
    return ""


@on_gpu("jax")
def test_allocations_and_peak_of_jax_are_those_of_its_allocator(lab: GpuLab) -> str:
    lab.build_large(512)
    engine: Any = lab.engine
    engine.run_steps(0, 4)
    before = engine._device.memory_stats()
    engine.run_steps(0, 4)
    after = engine._device.memory_stats()
    found = engine.count_allocations(0, 4).device
    assert found is not None
    assert found.count_per_step == (after["num_allocs"] - before["num_allocs"]) / 4
    assert engine.device_peak_bytes() == engine._device.memory_stats()["peak_bytes_in_use"]
    return (
        f"{found.count_per_step:g} a step, planned {found.bytes_per_step}; peak {engine.device_peak_bytes()}"
    )


@on_gpu("jax")
def test_the_max_pool_rule_of_xla(lab: GpuLab) -> str:
    import jax
    from jax import lax, numpy

    from polybench.engines.jax.device import find_device

    device = find_device("cuda")

    def gradient(x: Array, size: int, stride: int) -> Array:
        def pooled(given: Any) -> Any:
            windows = (1, 1, size, size), (1, 1, stride, stride), "VALID"
            return lax.reduce_window(given, -numpy.inf, lax.max, *windows).sum()

        return np.asarray(jax.jit(jax.grad(pooled))(jax.device_put(x, device)))

    rule = rule_of(gradient)
    assert rule.declaration == "EXACT", rule
    return f"{rule}, so {rule.declaration}"
