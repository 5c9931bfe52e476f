"""What memray counts of each framework: a known amount, planted through its own allocator; what it misses.

The amount is planted beside a network without convolutions, whose steps all allocate the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from polybench.core.layers import Dense, Flatten
from polybench.engines.flux.allocations import NATIVELY_UNSEEN as NATIVELY_UNSEEN_IN_JULIA
from polybench.engines.support.tensorflow.allocations import NATIVELY_UNSEEN
from polybench.models.lenet import LENET
from polybench.worker.native import count_native
from tests.engines.lab import Lab, RunCheck, in_process_of
from tests.engines.test_allocations import NO_ONEDNN, ONEDNN

PLANTED = 10 << 20
STEPS = 5
PLAIN = Flatten(), Dense("dense1", 3072, 10)


def planted_bytes(lab: Lab, plant: Callable[[], object]) -> float:
    """Bytes a step that are found when `plant` is called after each, less those without."""
    lab.build_layers(PLAIN)
    for step in range(3):
        lab.engine.run_steps(step, 1)
        plant()
    without = count_native(lab.engine, STEPS).bytes_per_step
    run_steps: Any = lab.engine.run_steps

    def run_and_plant(first: int, n: int) -> float:
        for step in range(first, first + n):
            run_steps(step, 1)
            plant()
        return 0.0

    lab.engine.run_steps = run_and_plant  # type: ignore[method-assign]
    try:
        return count_native(lab.engine, STEPS).bytes_per_step - without
    finally:
        del lab.engine.run_steps


@in_process_of("torch")
def test_torch_asks_for_what_is_planted(lab: Lab) -> None:
    import torch

    found = planted_bytes(lab, lambda: torch.empty(PLANTED, dtype=torch.uint8))
    assert found == pytest.approx(PLANTED, rel=0.01)


@in_process_of("tf", **NO_ONEDNN)
def test_tensorflow_asks_for_what_is_planted(lab: Lab) -> None:
    import tensorflow as tf

    assert planted_bytes(lab, lambda: tf.zeros([PLANTED], tf.uint8)) == pytest.approx(PLANTED, rel=0.01)
    assert lab.engine.unseen_natively() == ""


@in_process_of("tf", **ONEDNN)
def test_tensorflows_pool_hands_out_what_is_planted_where_onednn_is_on(lab: Lab) -> None:
    import tensorflow as tf

    assert planted_bytes(lab, lambda: tf.zeros([PLANTED], tf.uint8)) < 0.01 * PLANTED
    small = planted_bytes(lab, lambda: [tf.zeros([1 << 17], tf.uint8) for _ in range(8)])
    assert small == pytest.approx(1 << 20, rel=0.1)  # an eager call has allocations of its own
    assert lab.engine.unseen_natively() == NATIVELY_UNSEEN


@in_process_of("flux")
def test_julia_asks_for_large_objects_and_has_small_ones_from_pools(lab: Lab) -> None:
    from juliacall import Main as Julia

    def julia(expression: str) -> Callable[[], object]:
        function: Callable[[], object] = Julia.seval(f"() -> (global planted = {expression}; nothing)")
        return function

    large = julia(f"zeros(UInt8, {PLANTED})")
    assert planted_bytes(lab, large) == pytest.approx(PLANTED, rel=0.01)
    thousands = julia(f"for _ in 1:{PLANTED // 1000}; global planted = zeros(UInt8, 1000); end")
    # Pools map 64 MiB at once now and then (gc-pages.c of Julia 1.10): hardly thrice running.
    assert min(abs(planted_bytes(lab, thousands)) for _ in range(3)) < 0.1 * PLANTED
    past_the_linkage = julia(f"Libc.free(Libc.malloc({PLANTED}))")
    assert abs(planted_bytes(lab, past_the_linkage)) < 0.01 * PLANTED
    assert lab.engine.unseen_natively() == NATIVELY_UNSEEN_IN_JULIA


@in_process_of("torch")
def test_torch_asks_for_the_bytes_that_its_profiler_sees(lab: Lab) -> None:
    lab.build_layers(LENET.layers, repeats=16)
    lab.engine.run_steps(0, 3)
    native = count_native(lab.engine, STEPS)
    host = lab.engine.count_allocations(2, STEPS).host
    assert host is not None
    assert native.bytes_per_step == pytest.approx(host.bytes_per_step, rel=0.05)
    assert native.count_per_step > (host.count_per_step or 0)
    sizes = native.by_size
    assert sizes.small + sizes.medium + sizes.large == pytest.approx(native.count_per_step)
    assert 0 < native.live_peak_bytes < native.bytes_per_step


def counting_trains_as_running_does(lab: Lab) -> None:
    lab.build()
    for step in range(2 + STEPS):
        lab.engine.run_steps(step, 1)
    expected = lab.engine.loss()
    count_native(lab.engine, STEPS)
    assert lab.engine.loss() == expected


@pytest.mark.parametrize("engine", ["flux", "torch", "tf", "reference"])
def test_counting_trains_as_running_does(run_check: RunCheck, engine: str) -> None:
    run_check(engine, counting_trains_as_running_does)
