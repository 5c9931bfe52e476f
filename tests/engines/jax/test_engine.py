from __future__ import annotations

import itertools
from collections import Counter
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest.mock import patch

import msgspec
import numpy as np
import pytest

from polybench.engines.reference.layers import batch_statistics, max_pool
from polybench.engines.reference.network import logits
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import LSTM, Dense, Dropout, MaxPool
from polybench.parity_check.comparison import vary_constants
from tests.engines.engine_fixtures import EngineFixture, in_process_of, make_pipeline_input
from tests.engines.jax.layer_programs import program_of
from tests.example_networks import FEATURES, SEQUENCES, TEXT

ONE_THREAD = {"NPROC": "1", "PJRT_NPROC": "1"}
TASKS = Path("/proc/self/task")


UNNAMED = find_spec("jaxlib") is not None and version("jaxlib").startswith("0.5.")
"""True for the oldest supported jaxlib, which starts as many threads but does not name them."""


def threads_by_name() -> Counter[str]:
    """Count the threads of this process by name."""
    return Counter((task / "comm").read_text().strip() for task in TASKS.iterdir())


def cpu_seconds() -> dict[str, float]:
    """CPU time of each thread of this process."""
    return {task.name: int((task / "schedstat").read_text().split()[0]) / 1e9 for task in TASKS.iterdir()}


@in_process_of("jax")
def test_the_thread_pool_has_the_size_of_the_study(fixture: EngineFixture) -> None:
    fixture.build()
    fixture.engine.run_steps(0, 1)
    assert threads_by_name()["tf_XLAEigen"] == 2 or UNNAMED


@in_process_of("jax", **ONE_THREAD)
def test_with_one_thread_a_single_thread_computes_all_steps(fixture: EngineFixture) -> None:
    fixture.build()
    fixture.engine.run_steps(0, 1)
    assert threads_by_name()["tf_XLAEigen"] == 1 or UNNAMED
    before = cpu_seconds()
    fixture.engine.run_steps(0, 20)
    used = sorted(seconds - before.get(thread, 0) for thread, seconds in cpu_seconds().items())
    # The other threads submit work and wait. If two threads computed, each would use half of the time.
    assert used[-1] > 0.65 * sum(used), used


@in_process_of("jax")
def test_the_step_is_compiled_once(fixture: EngineFixture) -> None:
    fixture.build()
    for _ in range(3):
        fixture.engine.reset()
        fixture.engine.run_steps(0, 3)
    assert fixture.engine._program.update._cache_size() == 1


@in_process_of("jax")
def test_a_step_donates_the_state_but_not_the_initial_weights(fixture: EngineFixture) -> None:
    fixture.build()
    for _ in range(2):
        before = dict(fixture.engine._state["params"])
        fixture.engine.run_steps(0, 1)
        assert all(tensor.is_deleted() for tensor in before.values())
        fixture.engine.reset()
    for name, value in fixture.engine.snapshot(0).weights.items():
        np.testing.assert_array_equal(value, fixture.weights[name])


@in_process_of("jax", JAX_COMPILATION_CACHE_DIR="/nowhere", JAX_DEFAULT_MATMUL_PRECISION="bfloat16")
def test_cache_and_precision_are_set_explicitly(fixture: EngineFixture) -> None:
    import jax

    fixture.build(precision="tf32")
    assert jax.config.jax_default_matmul_precision == "tensorfloat32"
    fixture.build(precision="fp32")
    assert jax.config.jax_default_matmul_precision == "float32"
    assert not jax.config.jax_enable_compilation_cache


@in_process_of("jax", XLA_FLAGS="--xla_cpu_enable_fast_min_max=false")
def test_the_probe_returns_versions_and_the_users_xla_flags(fixture: EngineFixture) -> None:
    import jax

    info = fixture.engine.probe()
    assert set(info.versions) == {"jax", "jaxlib", "optax"}
    assert info.versions["jax"] == jax.__version__
    assert info.build == {"platform": "cpu", "xla_flags": "--xla_cpu_enable_fast_min_max=false"}


@in_process_of("jax")
def test_the_first_of_equal_values_in_a_window_gets_the_gradient(fixture: EngineFixture) -> None:
    import jax

    random = np.random.default_rng(0)
    x = random.integers(0, 3, (2, 3, 7, 6)).astype(np.float32)
    for size, stride in ((2, 2), (3, 2), (2, 1)):
        expected, backward = max_pool(x.astype(np.float64), size, stride)
        dy = random.random(expected.shape, dtype=np.float32)
        network = program_of((MaxPool(size, stride),), x.shape[1:]).network
        y, pullback = jax.vjp(partial(network, {}), x)
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_allclose(pullback(dy)[0], backward(dy.astype(np.float64))[0], rtol=1e-6)


@in_process_of("jax")
def test_batch_statistics_over_many_pixels_are_accurate(fixture: EngineFixture) -> None:
    import jax

    x = 1 + np.random.default_rng(0).random((4, 8, 256, 256), dtype=np.float32)
    statistics = jax.jit(lambda x: (x.mean((0, 2, 3)), x.var((0, 2, 3))))(x)
    for value, exact in zip(statistics, batch_statistics(x.astype(np.float64)), strict=True):
        np.testing.assert_allclose(value, exact, rtol=1e-6)


@in_process_of("jax")
def test_dropout_preserves_the_mean(fixture: EngineFixture) -> None:
    import jax

    def outputs(*layers: Dropout) -> Any:
        buffers, x = {"key": jax.random.key(0)}, np.ones((100, 1000), np.float32)
        y, changed = program_of(layers, (1000,)).network({}, buffers, x, training=True)
        assert changed["key"] != buffers["key"]
        return np.asarray(y)

    one = outputs(Dropout("one", 0.25))
    assert np.unique(one).tolist() == pytest.approx([0, 1 / 0.75])
    assert one.mean() == pytest.approx(1, abs=0.01)
    both = outputs(Dropout("one", 0.25), Dropout("two", 0.25))
    assert (both > 0).mean() == pytest.approx(0.75**2, abs=0.01)  # each layer has a key of its own


@in_process_of("jax")
def test_wait_until_idle_finishes_all_prefetched_batches(fixture: EngineFixture) -> None:
    fixture.build()
    fixture.engine.open_pipeline(make_pipeline_input(2, True)[0])
    fixture.engine.run_steps(0, 1)
    fixture.engine.wait_until_idle()
    pending = fixture.engine._pipeline._pending
    assert len(pending) == 3  # of four batches
    assert all(batch.done() for batch in pending)


@in_process_of("jax")
def test_preloading_ends_the_threads_of_the_pipeline(fixture: EngineFixture) -> None:
    fixture.build()
    engine: Any = fixture.engine
    engine.open_pipeline(make_pipeline_input(2, False)[0])
    threads = engine._pipeline._threads
    engine.load(fixture.images, fixture.labels)
    with pytest.raises(RuntimeError, match="after shutdown"):
        threads.submit(print)


@in_process_of("jax")
def test_a_block_ends_when_loss_and_weights_are_computed(fixture: EngineFixture) -> None:
    import jax

    fixture.build()
    engine: Any = fixture.engine
    engine.run_steps(0, 1)
    with patch.object(jax, "block_until_ready", wraps=jax.block_until_ready) as wait:
        engine.run_steps(1, 2)
    before, after = (call.args[0] for call in wait.call_args_list)
    assert before == (engine._state, None)
    assert after == (engine._state, engine._loss)


@in_process_of("jax")
def test_the_loss_is_float32_in_every_precision(fixture: EngineFixture) -> None:
    for precision in ("fp32", "bf16"):
        fixture.build(precision=precision)
        fixture.engine.run_steps(0, 1)
        assert fixture.engine._loss.dtype == "float32"


@in_process_of("jax")
def test_results_in_donated_buffers_are_no_new_memory(fixture: EngineFixture) -> None:
    from polybench.engines.jax.device import count_allocations, find_device

    plan = SimpleNamespace(temp_size_in_bytes=100, output_size_in_bytes=50, alias_size_in_bytes=30)
    compiled = SimpleNamespace(memory_analysis=lambda: plan)
    allocations = count_allocations(lambda: None, 2, compiled, find_device("cpu"))
    assert allocations.host is not None
    assert allocations.host.bytes_per_step == 100 + 50 - 30


@in_process_of("jax")
def test_every_layer_of_sequences_computes_what_the_reference_does(fixture: EngineFixture) -> None:
    import jax

    random = np.random.default_rng(0)
    tokens = random.integers(0, 11, (4, 7), np.int32)
    for model, x in ((SEQUENCES, tokens), (TEXT, tokens), (FEATURES, random.random((4, 5, 4), np.float32))):
        weights = vary_constants(initial_weights(model, 0))
        variables = (weights, {}) if any(isinstance(layer, Dropout) for layer in model.layers) else (weights,)
        found = program_of(model.layers, model.input_shape).network(*jax.device_put(variables), jax.device_put(x))
        logits_found = found[0] if len(variables) > 1 else found
        np.testing.assert_allclose(logits_found, logits(model, weights, x), rtol=1e-4, atol=1e-5, err_msg=model.name)


@in_process_of("jax")
def test_lstms_with_gates_of_their_own_compute_what_the_reference_does(fixture: EngineFixture) -> None:
    import jax

    x = np.random.default_rng(0).random((4, 5, 4), np.float32)
    gates: tuple[Literal["sigmoid", "hard_sigmoid"], ...] = ("sigmoid", "hard_sigmoid")
    for one, both in itertools.product(gates, gates):
        layers = (
            LSTM("one", 4, 3, sequence=True, recurrent_activation=one),
            LSTM("both", 3, 6, bidirectional=True, recurrent_activation=both),
            Dense("dense", 12, 4),
        )
        model = msgspec.structs.replace(FEATURES, layers=layers)
        weights = vary_constants(initial_weights(model, 0))
        found = program_of(layers, model.input_shape).network(*jax.device_put((weights, x)))
        expected = logits(model, weights, x)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5, err_msg=f"{one}, {both}")
