from __future__ import annotations

from collections import Counter
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from polybench.core.errors import Unavailable
from polybench.core.layers import Dropout, MaxPool
from polybench.engines.reference.layers import batch_statistics
from polybench.engines.reference.windows import max_pool
from tests.engines import pipeline_checks
from tests.engines.lab import Check, Lab, RunCheck, in_process_of, stream

ONE_THREAD = {"NPROC": "1", "PJRT_NPROC": "1"}
TASKS = Path("/proc/self/task")


UNNAMED = find_spec("jaxlib") is not None and version("jaxlib").startswith("0.5.")
"""The oldest jaxlib that polybench takes gives its threads no names; it starts as many."""


def threads_by_name() -> Counter[str]:
    """Of this process, as they call themselves."""
    return Counter((task / "comm").read_text().strip() for task in TASKS.iterdir())


def cpu_seconds() -> dict[str, float]:
    """What each thread of this process has had of a core."""
    return {task.name: int((task / "schedstat").read_text().split()[0]) / 1e9 for task in TASKS.iterdir()}


@in_process_of("jax")
def test_the_pool_that_steps_are_divided_among_has_the_threads_of_the_study(lab: Lab) -> None:
    lab.build()
    lab.engine.run_steps(0, 1)
    assert threads_by_name()["tf_XLAEigen"] == 2 or UNNAMED


@in_process_of("jax", **ONE_THREAD)
def test_with_one_thread_all_steps_are_computed_in_one_thread(lab: Lab) -> None:
    lab.build()
    lab.engine.run_steps(0, 1)
    assert threads_by_name()["tf_XLAEigen"] == 1 or UNNAMED
    before = cpu_seconds()
    lab.engine.run_steps(0, 20)
    spent = sorted(seconds - before.get(thread, 0) for thread, seconds in cpu_seconds().items())
    # The others give it work and wait for it; of two that compute, each would have half.
    assert spent[-1] > 0.65 * sum(spent), spent


@in_process_of("jax")
def test_the_step_is_compiled_once(lab: Lab) -> None:
    lab.build()
    for _ in range(3):
        lab.engine.reset()
        lab.engine.run_steps(0, 3)
    assert lab.engine._functions.step._cache_size() == 1


@in_process_of("jax")
def test_a_step_uses_up_the_state_and_not_the_initial_weights(lab: Lab) -> None:
    lab.build()
    for _ in range(2):
        before = lab.engine._state
        lab.engine.run_steps(0, 1)
        assert all(tensor.is_deleted() for tensor in before.weights.values())
        lab.engine.reset()
    for name, value in lab.engine.snapshot(0).weights.items():
        np.testing.assert_array_equal(value, lab.weights[name])


@in_process_of("jax", JAX_COMPILATION_CACHE_DIR="/nowhere", JAX_DEFAULT_MATMUL_PRECISION="bfloat16")
def test_cache_and_precision_are_set_and_not_inherited(lab: Lab) -> None:
    import jax

    lab.build(precision="tf32")
    assert jax.config.jax_default_matmul_precision == "tensorfloat32"
    lab.build(precision="fp32")
    assert jax.config.jax_default_matmul_precision == "float32"
    assert not jax.config.jax_enable_compilation_cache


@in_process_of("jax")
def test_a_missing_gpu_is_unavailable_with_a_remedy(lab: Lab) -> None:
    assert lab.engine.probe().devices[0] == "cpu"
    with pytest.raises(Unavailable) as missing:
        lab.build(device="cuda:99")
    assert missing.value.reason
    assert missing.value.remedy


@in_process_of("jax", XLA_FLAGS="--xla_cpu_enable_fast_min_max=false")
def test_the_probe_names_versions_and_the_flags_of_the_user(lab: Lab) -> None:
    import jax

    probe = lab.engine.probe()
    assert set(probe.versions) == {"jax", "jaxlib", "optax"}
    assert probe.versions["jax"] == jax.__version__
    assert probe.build == {"platform": "cpu", "xla_flags": "--xla_cpu_enable_fast_min_max=false"}


@in_process_of("jax")
def test_of_equal_values_in_a_window_the_first_has_the_gradient(lab: Lab) -> None:
    import jax

    from polybench.engines.jax.layers import Inference

    random = np.random.default_rng(0)
    x = random.integers(0, 3, (2, 3, 7, 6)).astype(np.float32)
    for size, stride in ((2, 2), (3, 2), (2, 1)):
        expected, backward = max_pool(x.astype(np.float64), size, stride, within=0)
        dy = random.random(expected.shape, dtype=np.float32)
        y, pullback = jax.vjp(partial(Inference({}, {}).layer, MaxPool(size, stride)), x)
        np.testing.assert_array_equal(y, expected)
        np.testing.assert_allclose(pullback(dy)[0], backward(dy.astype(np.float64))[0], rtol=1e-6)


@in_process_of("jax")
def test_sums_over_many_pixels_lose_nothing(lab: Lab) -> None:
    import jax

    x = 1 + np.random.default_rng(0).random((4, 8, 256, 256), dtype=np.float32)
    found = jax.jit(lambda x: (x.mean((0, 2, 3)), x.var((0, 2, 3))))(x)
    for value, exact in zip(found, batch_statistics(x.astype(np.float64)), strict=True):
        np.testing.assert_allclose(value, exact, rtol=1e-6)


@in_process_of("jax")
def test_dropout_drops_its_share_and_keeps_the_mean(lab: Lab) -> None:
    import jax

    from polybench.engines.jax.layers import Training

    training = Training({}, {}, jax.random.key(0), {})
    y = np.asarray(training.layer(Dropout("dropout", 0.25), np.ones((100, 1000), np.float32)))
    assert np.unique(y).tolist() == pytest.approx([0, 1 / 0.75])
    assert y.mean() == pytest.approx(1, abs=0.01)


@in_process_of("jax")
def test_nothing_of_the_pipeline_runs_on_when_it_is_idle(lab: Lab) -> None:
    lab.build()
    lab.engine.open_stream(stream(2, True)[0])
    lab.engine.run_steps(0, 1)
    lab.engine.wait_until_idle()
    ahead = lab.engine._pipeline._ahead
    assert len(ahead) == 3  # of four batches
    assert all(batch.done() for batch in ahead)


@pytest.mark.parametrize("check", pipeline_checks.CHECKS)
def test_the_pipeline(run_check: RunCheck, check: Check) -> None:
    run_check("jax", check)
