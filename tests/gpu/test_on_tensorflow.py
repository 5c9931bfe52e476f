"""TensorFlow's CUDA path on a device."""

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


@on_gpu("tf")
def test_tf32_of_tensorflow_can_be_switched_off_and_on(fixture: GpuEngineFixture) -> str:
    import tensorflow as tf

    fixture.build()  # only the measured GPU is visible

    def computed(operation: Callable[..., Any]) -> Operation:
        def compute(dtype: str, tf32: bool, *given: Array) -> Array:
            tf.config.experimental.enable_tensor_float_32_execution(tf32)
            with tf.device("/GPU:0"):
                return np.array(operation(*(tf.constant(one.astype(dtype)) for one in given)), np.float64)

        return compute

    def convolve(x: Any, w: Any) -> Any:
        return tf.nn.conv2d(tf.transpose(x, (0, 2, 3, 1)), tf.transpose(w, (2, 3, 1, 0)), 1, "VALID")

    return errors_without_and_with_tf32(product=computed(tf.matmul), convolution=computed(convolve))


@on_gpu("tf")
def test_tensorflows_pipeline_batches_follow_the_augmentations(fixture: GpuEngineFixture) -> str:
    pipeline_checks.returns_augmented_batches_with_any_number_of_workers(fixture)
    pipeline_checks.closes_when_batches_are_preloaded(fixture)
    return ""


@on_gpu("tf")
def test_allocations_and_peak_of_tensorflow_are_read(fixture: GpuEngineFixture) -> str:
    return fixture.describe_allocations()


@on_gpu("tf")
def test_the_max_pool_rule_of_tensorflows_kernels(fixture: GpuEngineFixture) -> str:
    import tensorflow as tf

    fixture.build()

    def gradient(x: Array, size: int, stride: int) -> Array:
        with tf.device("/GPU:0"), tf.GradientTape() as tape:
            given = tf.constant(x.transpose(0, 2, 3, 1))
            tape.watch(given)
            total = tf.reduce_sum(tf.nn.max_pool2d(given, size, stride, "VALID"))
        return np.asarray(tape.gradient(total, given)).transpose(0, 3, 1, 2)

    return check_max_pool_rule(gradient)
