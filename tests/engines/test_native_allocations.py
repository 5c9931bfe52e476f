"""Native allocations that memray counts for each framework.

Each test allocates a known amount through the framework's allocator after every step, and checks that memray
counts it, or does not if a pool serves it. The network has no convolutions, so its steps all allocate the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from polybench.engines import ENGINES
from polybench.engines.flux.engine import NATIVE_COVERAGE_GAPS as NATIVELY_UNSEEN_IN_JULIA
from polybench.errors import EngineUnavailable
from polybench.networks.layers import Dense, Flatten
from polybench.networks.lenet import LENET
from polybench.worker.allocations import count_native_allocations
from tests.engines.engine_fixtures import EngineFixture, RunCheck, in_process_of
from tests.engines.test_allocations import NO_ONEDNN

INJECTED = 10 << 20
STEPS = 5
PLAIN = Flatten(), Dense("dense1", 3072, 10)


def count_injected_bytes(fixture: EngineFixture, allocate: Callable[[], object]) -> float:
    """Return the additional bytes per step that are counted if `allocate` is called after each step."""
    fixture.build_layers(PLAIN)
    for step in range(3):
        fixture.engine.run_steps(step, 1)
        allocate()
    baseline = count_native_allocations(fixture.engine, STEPS).bytes_per_step
    run_steps: Any = fixture.engine.run_steps

    def run_and_allocate(first: int, n: int) -> float:
        for step in range(first, first + n):
            run_steps(step, 1)
            allocate()
        return 0.0

    fixture.engine.run_steps = run_and_allocate  # type: ignore[method-assign]
    try:
        return count_native_allocations(fixture.engine, STEPS).bytes_per_step - baseline
    finally:
        del fixture.engine.run_steps


@in_process_of("torch")
def test_torch_allocations_are_counted(fixture: EngineFixture) -> None:
    import torch

    injected = count_injected_bytes(fixture, lambda: torch.empty(INJECTED, dtype=torch.uint8))
    assert injected == pytest.approx(INJECTED, rel=0.01)


@in_process_of("tf", **NO_ONEDNN)
def test_tensorflow_allocations_are_counted_without_onednn(fixture: EngineFixture) -> None:
    import tensorflow as tf

    injected = count_injected_bytes(fixture, lambda: tf.zeros([INJECTED], tf.uint8))
    assert injected == pytest.approx(INJECTED, rel=0.01)


@in_process_of("tf", **ENGINES["tf"].counting_environment)
def test_tensorflow_allocations_are_counted_without_the_onednn_pool(fixture: EngineFixture) -> None:
    import tensorflow as tf

    injected = count_injected_bytes(fixture, lambda: tf.zeros([INJECTED], tf.uint8))
    assert injected == pytest.approx(INJECTED, rel=0.01)


@in_process_of("tf")
def test_nothing_is_counted_while_the_onednn_pool_hides_tensors(fixture: EngineFixture) -> None:
    with pytest.raises(EngineUnavailable, match="pool hides tensors of 256 KiB and more"):
        count_injected_bytes(fixture, lambda: None)


@in_process_of("flux")
def test_large_julia_objects_are_counted_but_small_ones_from_pools_are_not(fixture: EngineFixture) -> None:
    from juliacall import Main as Julia

    def julia(expression: str) -> Callable[[], object]:
        function: Callable[[], object] = Julia.seval(f"() -> (global injected = {expression}; nothing)")
        return function

    large = julia(f"zeros(UInt8, {INJECTED})")
    assert count_injected_bytes(fixture, large) == pytest.approx(INJECTED, rel=0.01)
    small = julia(f"for _ in 1:{INJECTED // 1000}; global injected = zeros(UInt8, 1000); end")
    # Pools sometimes map 64 MiB at once (gc-pages.c of Julia 1.10), but hardly three times in a row.
    assert min(abs(count_injected_bytes(fixture, small)) for _ in range(3)) < 0.1 * INJECTED
    direct_malloc = julia(f"Libc.free(Libc.malloc({INJECTED}))")
    assert abs(count_injected_bytes(fixture, direct_malloc)) < 0.01 * INJECTED
    assert fixture.engine.untraced_native_allocations() == NATIVELY_UNSEEN_IN_JULIA


@in_process_of("torch")
def test_native_bytes_of_torch_equal_those_of_its_profiler(fixture: EngineFixture) -> None:
    fixture.build_layers(LENET.layers, repeats=16)
    fixture.engine.run_steps(0, 3)
    native = count_native_allocations(fixture.engine, STEPS)
    host = fixture.engine.count_allocations(2, STEPS).host
    assert host is not None
    assert native.bytes_per_step == pytest.approx(host.bytes_per_step, rel=0.05)
    assert native.count_per_step > (host.count_per_step or 0)
    sizes = native.by_size
    assert sizes.lt_1kib + sizes.ge_1kib_lt_256kib + sizes.ge_256kib == pytest.approx(native.count_per_step)
    assert 0 < native.peak_live_bytes < native.bytes_per_step


def check_counting_trains_as_running_does(fixture: EngineFixture) -> None:
    fixture.build()
    for step in range(2 + STEPS):
        fixture.engine.run_steps(step, 1)
    expected = fixture.engine.loss()
    count_native_allocations(fixture.engine, STEPS)
    assert fixture.engine.loss() == expected


@pytest.mark.parametrize("engine", ["flux", "torch", "tf", "reference"])
def test_counting_trains_as_running_does(run_check: RunCheck, engine: str) -> None:
    pools_off = ENGINES["tf"].counting_environment if engine == "tf" else {}
    run_check(engine, check_counting_trains_as_running_does, **pools_off)
