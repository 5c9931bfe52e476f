"""CUDA path of the TensorFlow engine without a GPU: all of its GPU calls.

The GPU functions are mocks with the signatures of the installed TensorFlow (autospec). TensorFlow places
tensors for the missing GPU on the CPU (soft placement).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock, patch

import pytest

from polybench.engines.shared import frameworks
from tests.engines.device_calls import find_calls
from tests.engines.engine_fixtures import EngineFixture, in_process_of

GPU_PREFIXES = (
    "tf.config.list_physical_devices", "tf.config.get_visible_devices", "tf.config.set_visible_devices",
    "tf.config.experimental.", "tf.test.", "tf.sysconfig.get_build_info",
)  # fmt: skip
ALL = find_calls(("tf/*.py", "shared/tensorflow.py"), "tf.config.", "tf.test.", "tf.sysconfig.get_build_info")
NAMES = {name for name in ALL if name.startswith(GPU_PREFIXES)}


@contextlib.contextmanager
def fake_gpus() -> Iterator[dict[str, Mock]]:
    """Replace TensorFlow's GPU functions by mocks that report two GPUs; yields them by name."""
    import tensorflow as tf

    gpus = [tf.config.PhysicalDevice(f"/physical_device:GPU:{index}", "GPU") for index in range(2)]
    results: dict[str, Any] = {
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
        for name, result in results.items():
            *path, function = name.split(".")[1:]
            module = tf
            for attribute in path:
                module = getattr(module, attribute)
            mocks[name] = stack.enter_context(patch.object(module, function, autospec=True, return_value=result))
        stack.enter_context(patch.object(frameworks, "has_cuda_driver", lambda: True))
        yield mocks


def train(fixture: EngineFixture) -> None:
    """Run everything that uses a GPU."""
    fixture.build(device="cuda:1")
    fixture.engine.probe()
    fixture.engine.run_steps(0, 2)
    fixture.engine.count_allocations(0, 2)
    fixture.engine.device_peak_bytes()


@pytest.mark.cuda_level("tf", "type-checked")
@in_process_of("tf")
def test_all_gpu_calls_exist_in_the_installed_tensorflow(fixture: EngineFixture) -> None:
    with fake_gpus() as mocks:
        train(fixture)
        assert fixture.engine.timing_resolution == "block"
        assert fixture.engine.device_peak_bytes() == 12_345
        assert fixture.engine.device_bytes_in_use() == 1
        assert fixture.engine.probe().devices == ("cpu", "cuda:0", "cuda:1")
    assert len(NAMES) >= 8
    assert {name for name, mock in mocks.items() if mock.called} >= NAMES
    gpus = mocks["tf.config.list_physical_devices"].return_value
    mocks["tf.config.set_visible_devices"].assert_called_with([gpus[1]], "GPU")
    mocks["tf.config.experimental.set_memory_growth"].assert_called_with(gpus[1], True)
    mocks["tf.config.experimental.get_memory_info"].assert_called_with("GPU:0")


@in_process_of("tf")
def test_the_device_is_synchronized_only_before_and_after_a_block(fixture: EngineFixture) -> None:
    from polybench.engines.shared import python_engine

    order: list[str] = []
    clock = patch.object(python_engine, "perf_counter", lambda: order.append("clock") or 0.0)
    with fake_gpus() as mocks, clock:
        fixture.build(device="cuda")
        order.clear()
        mocks["tf.test.experimental.sync_devices"].side_effect = lambda: order.append("synchronize")
        step = fixture.engine._train_step
        fixture.engine._train_step = lambda *batch: (order.append("step"), step(*batch))[1]
        fixture.engine.run_steps(0, 3)
    assert order == ["synchronize", "clock", "step", "step", "step", "synchronize", "clock"]
