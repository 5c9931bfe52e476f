"""What engines count against what follows from the shapes of their layers.

Gradients of weights do not grow with the batch B, activations do in proportion: whatever else a framework
allocates, bytes(4B) - bytes(2B) = 2 (bytes(2B) - bytes(B)).

What TensorFlow's CPU tells depends on oneDNN, which is on by default on newer CPUs only. Here it is switched
on and off: the tests are the same on every CPU.
"""

from __future__ import annotations

import unittest.mock
from typing import Any

import pytest

from polybench.core.document.resources import Allocation, Allocations
from polybench.core.layers import Conv, Dense, Flatten, Layer, MaxPool, ReLU
from polybench.engines.jax.allocations import SOURCE as PLANNED
from polybench.engines.support.tensorflow import allocations
from polybench.engines.support.tensorflow.allocations import HOST_COVERS, POOL_COVERS, SILENT, SOURCE
from polybench.models.lenet import LENET
from tests.engines.lab import Lab, RunCheck, in_process_of

ONEDNN: dict[str, Any] = {"TF_ENABLE_ONEDNN_OPTS": "1"}
NO_ONEDNN: dict[str, Any] = {"TF_ENABLE_ONEDNN_OPTS": "0"}

Layers = tuple[Layer, ...]


def counted(
    lab: Lab, layers: Layers, repeats: int = 1, variants: tuple[str, ...] = (), steps: int = 3
) -> Allocations:
    lab.build_layers(layers, repeats, variants)
    lab.engine.run_steps(0, 2)
    return lab.engine.count_allocations(2, steps)


def bytes_of_an_image(lab: Lab, layers: Layers, repeats: int = 1, variants: tuple[str, ...] = ()) -> float:
    b1, b2, b4 = (counted(lab, layers, times * repeats, variants).host.bytes_per_step for times in (1, 2, 4))
    assert b4 - b2 == 2 * (b2 - b1), (b1, b2, b4)
    return (b2 - b1) / (repeats * lab.images.shape[1])


@in_process_of("torch")
def test_torch_counts_dense_layers(lab: Lab) -> None:
    layers = Flatten(), Dense("dense1", 3072, 60), ReLU(), Dense("dense2", 60, 10)
    # What dense1 and the ReLU give, and the gradients of both; so for logits and their log-softmax.
    assert bytes_of_an_image(lab, layers) == 4 * (4 * 60 + 4 * 10)


@in_process_of("torch")
def test_torch_counts_lenet_in_both_layouts(lab: Lab) -> None:
    conv1, pool1, conv2, pool2 = 16 * 28 * 28, 16 * 14 * 14, 8 * 10 * 10, 8 * 5 * 5
    # As above for convolutions and ReLUs; pools, with where they found the maximum, in int64; dense layers.
    tensors = 4 * (4 * conv1 + 2 * pool1 + 4 * conv2 + 2 * pool2 + 2 * (120 + 84) + 4 * 10)
    tensors += 8 * (pool1 + pool2)
    assert tensors <= bytes_of_an_image(lab, LENET.layers, variants=("channels_last",)) < 1.1 * tensors
    # What oneDNN reorders before a convolution and after it depends on the processor.
    assert tensors <= bytes_of_an_image(lab, LENET.layers) < 2 * tensors


@in_process_of("keras+torch")
def test_keras_on_torch_counts_no_less_than_torch(lab: Lab) -> None:
    tensors = 4 * (2 * 60 + 2 * 10)  # what both layers give, and the gradients of that
    layers = Flatten(), Dense("dense1", 3072, 60), ReLU(), Dense("dense2", 60, 10)
    assert tensors <= bytes_of_an_image(lab, layers) < 10 * tensors


@in_process_of("torch")
def test_torch_counts_for_one_step(lab: Lab) -> None:
    three, five = (counted(lab, LENET.layers, steps=steps).host for steps in (3, 5))
    assert three == five
    assert three.count_per_step == int(three.count_per_step) > 40


@in_process_of("torch")
def test_torch_has_no_number_of_a_device_that_is_not_used(lab: Lab) -> None:
    lab.build()
    assert lab.engine.count_allocations(0, 1).device is None
    assert lab.engine.device_peak_bytes() is None


def counting_trains_as_running_does(lab: Lab) -> None:
    lab.build()
    lab.engine.run_steps(0, 3)
    expected = lab.engine.loss()
    lab.engine.reset()
    lab.engine.count_allocations(0, 3)
    assert lab.engine.loss() == expected


@pytest.mark.parametrize(
    ("engine", "environment"),
    [("torch", {}), ("tf", ONEDNN), ("jax", {}), ("keras+torch", {})],
    ids=["torch", "tf", "jax", "keras+torch"],
)
def test_counting_trains_as_running_does(
    run_check: RunCheck, engine: str, environment: dict[str, str]
) -> None:
    run_check(engine, counting_trains_as_running_does, **environment)


# The smallest tensors of what the convolution gives have 1.5 MiB; of all others none has 256 KiB.
LARGE = Conv("conv1", 3, 32, kernel=5), ReLU(), MaxPool(14), Flatten(), Dense("dense1", 128, 10)


@in_process_of("tf", **ONEDNN)
def test_tensorflow_counts_tensors_of_a_mebibyte_and_more(lab: Lab) -> None:
    # The ReLU gives a tensor (in the convolution's place), and so does the pool's gradient.
    assert bytes_of_an_image(lab, LARGE, 2) == 2 * 4 * 32 * 28 * 28
    # For model.fit the same, and the copy of the images that an iterator over tensors makes.
    assert bytes_of_an_image(lab, LARGE, 2, ("keras_fit",)) == 2 * 4 * 32 * 28 * 28 + 4 * 3 * 32 * 32


@in_process_of("tf", **ONEDNN)
def test_xla_plans_one_block(lab: Lab) -> None:
    assert counted(lab, LENET.layers, 4, ("xla",)).host.count_per_step == 1


@in_process_of("tf", **ONEDNN)
def test_tensorflow_has_no_number_of_small_tensors(lab: Lab) -> None:
    found = counted(lab, (Flatten(), Dense("dense1", 3072, 10)))
    assert found == Allocations(Allocation(None, None, SOURCE, POOL_COVERS), None)
    assert lab.engine.device_peak_bytes() is None


@in_process_of("tf", **NO_ONEDNN)
def test_without_onednn_tensorflow_counts_tensors_of_every_size(lab: Lab) -> None:
    # The logits and the gradient of the weights, at least; which others are computed in place of one another
    # depends on the order in which threads come to them.
    small = counted(lab, (Flatten(), Dense("dense1", 3072, 10))).host
    assert 4 * (8 * 10 + 3072 * 10) <= small.bytes_per_step < 256 << 10
    for variants in ((), ("xla",), ("keras_fit",)):
        found = counted(lab, LARGE, 2, variants).host
        assert (found.source, found.covers) == (SOURCE, HOST_COVERS)
        assert found.bytes_per_step > 2 * 8 * 4 * 32 * 28 * 28


@in_process_of("tf", **NO_ONEDNN)
def test_a_version_of_tensorflow_without_the_switch_has_no_number_and_says_why(lab: Lab) -> None:
    with unittest.mock.patch.object(allocations, "_START_STATISTICS", "no_such_function"):
        found = counted(lab, LARGE, 2)
    assert found == Allocations(Allocation(None, None, SOURCE, SILENT), None)


@in_process_of("jax")
def test_jax_plans_no_more_than_all_tensors_and_no_less_than_one(lab: Lab) -> None:
    layers = Flatten(), Dense("dense1", 3072, 60), ReLU(), Dense("dense2", 60, 10)
    b1, b2 = (counted(lab, layers, repeats) for repeats in (1, 2))
    assert (b1.host.count_per_step, b1.host.source, b1.device) == (None, PLANNED, None)
    image = (b2.host.bytes_per_step - b1.host.bytes_per_step) / lab.images.shape[1]
    assert 4 * 60 <= image <= 4 * (4 * 60 + 4 * 10)
    assert lab.engine.device_peak_bytes() is None
