"""The CUDA path of TensorFlow's engine without a GPU: every call that it makes of one.

They are stand-ins with the signatures of the installed TensorFlow (autospec). What would be placed on the
GPU, TensorFlow itself places on the CPU, since the GPU is not there (soft placement).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock, patch

import pytest

from polybench.engines.support import frameworks
from tests.engines.device_calls import calls
from tests.engines.lab import Lab, in_process_of

OF_DEVICES = (
    "tf.config.list_physical_devices", "tf.config.get_visible_devices", "tf.config.set_visible_devices",
    "tf.config.experimental.", "tf.test.", "tf.sysconfig.get_build_info",
)  # fmt: skip
ALL = calls(("tensorflow", "support/tensorflow"), "tf.config.", "tf.test.", "tf.sysconfig.get_build_info")
NAMES = {name for name in ALL if name.startswith(OF_DEVICES)}


@contextlib.contextmanager
def gpu_stand_in() -> Iterator[dict[str, Mock]]:
    """Two GPUs by all that TensorFlow says of them; by the names in NAMES."""
    import tensorflow as tf

    gpus = [tf.config.PhysicalDevice(f"/physical_device:GPU:{index}", "GPU") for index in range(2)]
    answers: dict[str, Any] = {
        "tf.config.list_physical_devices": gpus,
        "tf.config.get_visible_devices": gpus,
        "tf.config.set_visible_devices": None,
        "tf.config.experimental.get_memory_growth": False,
        "tf.config.experimental.set_memory_growth": None,
        "tf.config.experimental.get_memory_info": {"current": 1, "peak": 12_345},
        "tf.config.experimental.enable_tensor_float_32_execution": None,
        "tf.test.is_built_with_cuda": True,
        "tf.test.experimental.sync_devices": None,
        "tf.sysconfig.get_build_info": {"cuda_version": "12.5", "cudnn_version": "9"},
    }
    with contextlib.ExitStack() as stack:
        mocks = {}
        for name, answer in answers.items():
            *path, last = name.split(".")[1:]
            place = tf
            for part in path:
                place = getattr(place, part)
            mocks[name] = stack.enter_context(patch.object(place, last, autospec=True, return_value=answer))
        stack.enter_context(patch.object(frameworks, "driver_is_there", lambda: True))
        yield mocks


def train(lab: Lab) -> None:
    """All that asks for a GPU, from its finding to its peak."""
    lab.build(device="cuda:1")
    lab.engine.probe()
    lab.engine.run_steps(0, 2)
    lab.engine.count_allocations(0, 2)
    lab.engine.device_peak_bytes()


@in_process_of("tf")
def test_every_call_of_a_gpu_is_one_that_this_tensorflow_has(lab: Lab) -> None:
    with gpu_stand_in() as mocks:
        train(lab)
        assert lab.engine.sample_kind == "block"
        assert lab.engine.device_peak_bytes() == 12_345
        assert lab.engine.probe().devices == ("cpu", "cuda:0", "cuda:1")
    assert {name for name, mock in mocks.items() if mock.called} >= NAMES
    gpus = mocks["tf.config.list_physical_devices"].return_value
    mocks["tf.config.set_visible_devices"].assert_called_with([gpus[1]], "GPU")
    mocks["tf.config.experimental.set_memory_growth"].assert_called_with(gpus[1], True)
    mocks["tf.config.experimental.get_memory_info"].assert_called_with("GPU:0")


@in_process_of("tf")
def test_a_misspelled_call_of_a_gpu_is_found(lab: Lab) -> None:
    """What a misspelled name is to Python, each of them is made to be: one that the module has not."""
    for name in sorted(NAMES):
        with gpu_stand_in() as mocks:
            mocks[name].side_effect = AttributeError(name)
            with pytest.raises(AttributeError, match=name):
                train(lab)
    with gpu_stand_in() as mocks, pytest.raises(TypeError, match="argument"):
        mocks["tf.test.experimental.sync_devices"]("GPU:0")


@in_process_of("tf")
def test_the_device_is_synchronized_at_both_ends_of_a_block_and_nowhere_else(lab: Lab) -> None:
    with gpu_stand_in() as mocks:
        lab.build(device="cuda")
        order: list[str] = []
        mocks["tf.test.experimental.sync_devices"].side_effect = lambda: order.append("synchronize")
        step = lab.engine._step
        lab.engine._step = lambda *batch: (order.append("step"), step(*batch))[1]
        lab.engine.run_steps(0, 3)
    assert order == ["synchronize", "step", "step", "step", "synchronize"]


def test_all_names_are_found_in_the_sources() -> None:
    assert {"tf.test.experimental.sync_devices", "tf.config.experimental.set_memory_growth"} <= NAMES
    of_the_cpu = (
        "threading",
        "logical_device",
        "LogicalDevice",
    )  # they run, in tests/engines/test_replicas.py
    assert {name for name in ALL - NAMES if not any(part in name for part in of_the_cpu)} == set()
