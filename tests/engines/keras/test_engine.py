"""Keras on each backend, checked inside the engine's process."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from polybench.errors import EngineUnavailable
from polybench.networks.optimizers import Optimizer
from tests.engines.engine_fixtures import EngineFixture, in_process_of


@in_process_of("keras")
def test_the_step_is_traced_once(fixture: EngineFixture) -> None:
    fixture.build()
    traces: list[int] = []
    train_step = fixture.engine._model.train_step
    fixture.engine._model.train_step = lambda data: (traces.append(1), train_step(data))[1]
    for _ in range(2):
        fixture.engine.reset()
        fixture.engine.run_steps(0, 3)
    assert len(traces) == 1


@in_process_of("keras+jax")
def test_the_step_is_compiled_once_and_the_thread_pool_has_the_size_of_the_study(fixture: EngineFixture) -> None:
    import jax

    from tests.engines.jax.test_engine import UNNAMED, threads_by_name

    fixture.build()
    assert isinstance(fixture.engine._model.trainable_variables[0].value, jax.Array)
    traces: list[int] = []
    train_step = fixture.engine._model.train_step
    fixture.engine._model.train_step = lambda *args: (traces.append(1), train_step(*args))[1]
    for _ in range(2):
        fixture.engine.reset()
        fixture.engine.run_steps(0, 3)
    assert len(traces) == 1
    assert threads_by_name()["tf_XLAEigen"] == 2 or UNNAMED


@in_process_of("keras+torch")
def test_the_step_is_eager_and_the_thread_pools_have_the_size_of_the_study(fixture: EngineFixture) -> None:
    import torch

    fixture.build()
    calls: list[int] = []
    train_step = fixture.engine._model.train_step
    fixture.engine._model.train_step = lambda data: (calls.append(1), train_step(data))[1]
    fixture.engine.run_steps(0, 3)
    assert len(calls) == 3
    assert (torch.get_num_threads(), torch.get_num_interop_threads()) == (2, 2)


@in_process_of("keras+torch")
def test_the_users_keras_configuration_has_no_effect(fixture: EngineFixture) -> None:
    import keras

    keras.config.set_image_data_format("channels_first")
    keras.config.set_floatx("float16")
    fixture.build()
    conv1 = fixture.engine._model.get_layer("conv1")
    assert conv1.data_format == "channels_last"
    assert conv1.kernel.dtype == "float32"


@in_process_of("keras+torch")
def test_float64_is_enabled_only_for_the_parity_check(fixture: EngineFixture) -> None:
    import keras

    dtypes = []
    for dtype in ("float64", "float32"):
        fixture.build(dtype=dtype)
        dtypes.append(keras.backend.result_type("float64", "float32"))
    assert dtypes == ["float64", "float32"]


@in_process_of("keras+torch")
def test_only_the_cpu_is_available(fixture: EngineFixture) -> None:
    info = fixture.engine.probe()
    assert info.devices == ("cpu",)
    assert set(info.versions) == {"keras", "torch"}
    assert info.build["backend"] == "torch"
    with pytest.raises(EngineUnavailable) as missing:
        fixture.build(device="cuda")
    assert missing.value.hint == "use --devices cpu"


@in_process_of("keras")
def test_the_clock_stops_when_the_weights_are_computed(fixture: EngineFixture) -> None:
    from polybench.engines.shared import python_engine

    fixture.build()
    engine: Any = fixture.engine
    order: list[str] = []
    with (
        patch.object(python_engine, "perf_counter", lambda: order.append("clock") or 0.0),
        patch.object(engine._backend, "synchronize", lambda values: order.append(f"synchronize {values[0]}")),
        patch.object(engine, "_train_step", lambda *_: order.append("step") or "loss"),
    ):
        engine.run_steps(0, 2)
    assert order == ["synchronize None", "clock", "step", "step", "synchronize loss", "clock"]


@in_process_of("keras+jax")
def test_nothing_compiled_is_read_from_a_disk(fixture: EngineFixture) -> None:
    import jax

    jax.config.update("jax_enable_compilation_cache", True)
    fixture.build()
    assert not jax.config.jax_enable_compilation_cache


@in_process_of("keras")
def test_native_allocations_are_unavailable_while_a_pool_hides_tensors(fixture: EngineFixture) -> None:
    from polybench.engines.shared import tensorflow

    with (
        patch.object(tensorflow, "uses_onednn", lambda: True),
        patch.dict("os.environ", {"TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "0"}),
        pytest.raises(EngineUnavailable, match="pool hides tensors"),
    ):
        fixture.engine.untraced_native_allocations()


@in_process_of("keras+torch")
def test_decay_adds_its_share_of_the_weights_to_the_gradients(fixture: EngineFixture) -> None:
    import keras

    fixture.build(variants=("torch",), optimizer=Optimizer("sgd", 0.5, weight_decay=0.1))
    weights = keras.Variable(np.array([2.0, -1.0]), dtype="float32")
    optimizer = fixture.engine._program.make_optimizer(SimpleNamespace(trainable_variables=[weights]))
    optimizer.apply([keras.ops.array([1.0, 0.0])], [weights])
    np.testing.assert_allclose(weights.numpy(), [2 - 0.5 * 1.2, -1 + 0.5 * 0.1], rtol=1e-6)


@in_process_of("keras")
def test_restored_velocities_have_the_rate_with_which_they_were_saved(fixture: EngineFixture) -> None:
    fixture.build(optimizer=Optimizer("momentum", 0.4, 0.5, lr_schedule=((1, 0.1), (2, 0.2))))
    engine: Any = fixture.engine
    engine.run_steps(0, 1)
    saved, velocities = engine.training_state(), [one.numpy() for one in engine._state.optimizer.momentums]
    engine.run_steps(1, 1)
    engine.restore_training_state(saved)
    engine._program.set_learning_rate(engine._state, 0.2)
    for velocity, before in zip(engine._state.optimizer.momentums, velocities, strict=True):
        np.testing.assert_allclose(velocity.numpy(), before / 2, rtol=1e-6)
