"""Keras on its backends, from inside a process of each."""

from __future__ import annotations

import pytest

from polybench.core.errors import Unavailable
from polybench.core.job import Job
from polybench.core.spec import Workload
from polybench.models.lenet import LENET
from tests.engines.lab import Lab, in_process_of


@in_process_of("keras")
def test_the_step_is_traced_once(lab: Lab) -> None:
    lab.build()
    traced: list[int] = []
    own = lab.engine._model.train_step
    lab.engine._model.train_step = lambda data: (traced.append(1), own(data))[1]
    for _ in range(2):
        lab.engine.reset()
        lab.engine.run_steps(0, 3)
    assert len(traced) == 1


@in_process_of("keras+jax")
def test_the_step_is_compiled_once_and_its_pool_has_the_threads_of_the_study(lab: Lab) -> None:
    import jax

    from tests.engines.jax.test_engine import UNNAMED, threads_by_name

    lab.build()
    assert isinstance(lab.engine._model.trainable_variables[0].value, jax.Array)
    traced: list[int] = []
    own = lab.engine._model.train_step
    lab.engine._model.train_step = lambda *given: (traced.append(1), own(*given))[1]
    for _ in range(2):
        lab.engine.reset()
        lab.engine.run_steps(0, 3)
    assert len(traced) == 1
    assert threads_by_name()["tf_XLAEigen"] == 2 or UNNAMED


@in_process_of("keras+torch")
def test_the_step_is_eager_with_the_threads_of_the_study(lab: Lab) -> None:
    import torch

    lab.build()
    called: list[int] = []
    own = lab.engine._model.train_step
    lab.engine._model.train_step = lambda data: (called.append(1), own(data))[1]
    lab.engine.run_steps(0, 3)
    assert len(called) == 3
    assert (torch.get_num_threads(), torch.get_num_interop_threads()) == (2, 2)


@in_process_of("keras+torch")
def test_the_users_configuration_of_keras_changes_nothing(lab: Lab) -> None:
    import keras

    keras.config.set_image_data_format("channels_first")
    keras.config.set_floatx("float16")
    lab.build()
    assert lab.engine._network.named["conv1"].data_format == "channels_last"
    assert lab.engine._network.named["conv1"].kernel.dtype == "float32"


@in_process_of("keras+torch")
def test_only_the_identity_check_has_float64_where_keras_has_not(lab: Lab) -> None:
    import keras

    seen = []
    for dtype in ("float64", "float32"):
        workload = Workload("lenet", "noise", 8, LENET.optimizer, "fp32", 2)
        lab.engine.build(Job(LENET, workload, "cpu", dtype), lab.weights)
        seen.append(keras.backend.result_type("float64", "float32"))
    assert seen == ["float64", "float32"]


@in_process_of("keras+torch")
def test_it_trains_on_the_cpu_only(lab: Lab) -> None:
    probe = lab.engine.probe()
    assert probe.devices == ("cpu",)
    assert set(probe.versions) == {"keras", "torch"}
    assert probe.build["backend"] == "torch"
    with pytest.raises(Unavailable) as missing:
        lab.build(device="cuda")
    assert missing.value.remedy == "use --devices cpu"
