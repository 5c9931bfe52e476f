"""The layout's arithmetic, which needs no TensorFlow, and what only a process with TensorFlow can show."""

from __future__ import annotations

import numpy as np
import pytest

from polybench.engines.tensorflow import flattened_shapes, from_keras, to_keras
from polybench.models.lenet import LENET
from tests.engines.conftest import RunChecks


@pytest.mark.parametrize(
    ("shape", "flattened"), [((8, 16, 5, 3), None), ((120, 200), None), ((120, 200), (8, 5, 5)), ((7,), None)]
)
def test_there_and_back(shape: tuple[int, ...], flattened: tuple[int, int, int] | None) -> None:
    value = np.random.default_rng(0).random(shape)
    np.testing.assert_array_equal(from_keras(to_keras(value, flattened), flattened), value)


def test_a_dense_layer_after_a_flatten_sees_the_same_pixels() -> None:
    random = np.random.default_rng(0)
    images, weight = random.random((2, 3, 4, 5)), random.random((6, 60))
    channels_last = images.transpose(0, 2, 3, 1).reshape(2, -1)
    expected = images.reshape(2, -1) @ weight.T
    np.testing.assert_allclose(channels_last @ to_keras(weight, (3, 4, 5)), expected)


def test_a_convolution_kernel_goes_to_height_width_in_out() -> None:
    value = np.random.default_rng(0).random((8, 16, 5, 3))
    assert to_keras(value, None)[1, 2, 10, 7] == value[7, 10, 1, 2]


def test_only_the_first_dense_layer_reads_what_was_flattened() -> None:
    assert flattened_shapes(LENET) == {"dense1": (8, 5, 5)}


CHECKS = {
    "threads are those of the study": """
import tensorflow as tf
build()
pools = tf.config.threading
assert pools.get_intra_op_parallelism_threads() == pools.get_inter_op_parallelism_threads() == 2
""",
    "the step is traced once": """
build()
for block in range(3):
    engine.reset()
    engine.run_steps(0, 3)
assert engine._step.experimental_get_tracing_count() == 1
""",
    "fit is timed in blocks and traced once": """
build(variants=("keras_fit",))
assert engine.sample_kind == "block"
engine.run_steps(0, 1)
step = engine._model.train_function
for n in (1, 2, 3):
    engine.reset()
    engine.run_steps(0, n)
assert engine._model.train_function is step
""",
    "tf32 is off": """
import tensorflow as tf
build()
assert not tf.config.experimental.tensor_float_32_execution_enabled()
""",
    "a missing GPU is unavailable with a remedy": """
try:
    build(device="cuda:99")
except Unavailable as lacking:
    assert lacking.reason and lacking.remedy
else:
    raise AssertionError("built")
""",
}


@pytest.mark.parametrize("name", CHECKS)
def test_tensorflow(run_checks: RunChecks, name: str) -> None:
    assert not (failure := run_checks("tf", CHECKS)[name]), failure
