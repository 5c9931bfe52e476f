"""Keras on each backend, checked inside the engine's process."""

from __future__ import annotations

import pytest

from polybench.errors import EngineUnavailable
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
    assert fixture.engine._network.named_layers["conv1"].data_format == "channels_last"
    assert fixture.engine._network.named_layers["conv1"].kernel.dtype == "float32"


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
