"""JAX's CUDA path on a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from polybench.engines.base import Array
from tests.engines import pipeline_checks
from tests.gpu.engine_fixtures import GpuEngineFixture, on_gpu
from tests.gpu.experiments import Operation, check_max_pool_rule, errors_without_and_with_tf32

pytestmark = pytest.mark.gpu


@on_gpu("jax")
def test_tf32_of_jax_can_be_switched_off_and_on(fixture: GpuEngineFixture) -> str:
    import jax
    from jax import lax, numpy

    from polybench.engines.jax.device import find_device, set_precision

    device = find_device("cuda")

    def computed(operation: Callable[..., Any]) -> Operation:
        def compute(dtype: str, tf32: bool, *given: Array) -> Array:
            set_precision(dtype, "tf32" if tf32 else "fp32")
            placed = [jax.device_put(one.astype(dtype), device) for one in given]
            # Without autotuning, XLA computed a convolution in float32 on an H100, although TensorFloat-32 was on.
            compiled = jax.jit(operation).lower(*placed).compile({"xla_gpu_autotune_level": 4})
            return np.asarray(compiled(*placed), np.float64)

        return compute

    convolve = computed(lambda x, w: lax.conv(x, w, (1, 1), "VALID"))
    return errors_without_and_with_tf32(product=computed(numpy.matmul), convolution=convolve)


@on_gpu("jax")
def test_a_block_of_jax_ends_after_its_steps(fixture: GpuEngineFixture) -> str:
    """Check that twice the steps take about twice as long; if only the host were timed, they would not."""
    import jax

    fixture.build_large(4096)
    engine: Any = fixture.engine
    engine.run_steps(0, 8)
    seconds = min(engine.run_steps(0, 16) for _ in range(5))
    jax.block_until_ready(engine._state)
    images, labels = engine._batches[0]
    loss = engine._program.train_step(engine._state, (images, labels))
    assert not loss.is_ready()  # a step continues after its call returns
    engine._loss = jax.block_until_ready(loss)
    one = min(engine.run_steps(0, 1) for _ in range(5))
    assert seconds > 8 * one
    return f"16 steps {seconds * 1e3:.2f} ms, one {one * 1e3:.2f} ms"


@on_gpu("jax")
def test_jaxs_pipeline_batches_follow_the_augmentations(fixture: GpuEngineFixture) -> str:
    pipeline_checks.returns_augmented_batches_with_any_number_of_workers(fixture)
    pipeline_checks.closes_when_batches_are_preloaded(fixture)
    return ""


@on_gpu("jax")
def test_allocations_and_peak_of_jax_come_from_its_allocator(fixture: GpuEngineFixture) -> str:
    fixture.build_large(512)
    engine: Any = fixture.engine
    engine.run_steps(0, 4)
    before = engine._device.memory_stats()
    engine.run_steps(0, 4)
    after = engine._device.memory_stats()
    found = engine.count_allocations(0, 4).device
    assert found is not None
    assert found.count_per_step == (after["num_allocs"] - before["num_allocs"]) / 4
    assert engine.device_peak_bytes() == engine._device.memory_stats()["peak_bytes_in_use"]
    return f"{found.count_per_step:g} a step, planned {found.bytes_per_step}; peak {engine.device_peak_bytes()}"


@on_gpu("jax")
def test_the_max_pool_rule_of_xla(fixture: GpuEngineFixture) -> str:
    import jax
    from jax import lax, numpy

    from polybench.engines.jax.device import find_device

    device = find_device("cuda")

    def gradient(x: Array, size: int, stride: int) -> Array:
        def pooled(given: Any) -> Any:
            windows = (1, 1, size, size), (1, 1, stride, stride), "VALID"
            return lax.reduce_window(given, -numpy.inf, lax.max, *windows).sum()

        return np.asarray(jax.jit(jax.grad(pooled))(jax.device_put(x, device)))

    return check_max_pool_rule(gradient)
