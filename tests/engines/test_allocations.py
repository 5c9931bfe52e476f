"""Allocation counts of engines, compared with the shapes of their layers.

Weight gradients do not grow with the batch size B, and activations grow in proportion to it. Therefore
bytes(4B) - bytes(2B) = 2 (bytes(2B) - bytes(B)), whatever else a framework allocates.

TensorFlow's CPU events depend on oneDNN, which `engine_workers` enables on every CPU.
"""

from __future__ import annotations

import unittest.mock
from typing import Any

import pytest

from polybench.networks.layers import Conv, Dense, Flatten, Layer, MaxPool, ReLU
from polybench.networks.lenet import LENET
from polybench.schema.resources import Allocations
from tests.engines.engine_fixtures import EngineFixture, RunCheck, in_process_of

NO_ONEDNN: dict[str, Any] = {"TF_ENABLE_ONEDNN_OPTS": "0"}

Layers = tuple[Layer, ...]


def counted(
    fixture: EngineFixture, layers: Layers, repeats: int = 1, variants: tuple[str, ...] = (), steps: int = 3
) -> Allocations:
    fixture.build_layers(layers, repeats, variants)
    fixture.engine.run_steps(0, 2)
    return fixture.engine.count_allocations(2, steps)


def bytes_per_image(fixture: EngineFixture, layers: Layers, repeats: int = 1, variants: tuple[str, ...] = ()) -> float:
    b1, b2, b4 = (counted(fixture, layers, times * repeats, variants).host.bytes_per_step for times in (1, 2, 4))
    assert b4 - b2 == 2 * (b2 - b1), (b1, b2, b4)
    return (b2 - b1) / (repeats * fixture.images.shape[1])


@in_process_of("torch")
def test_torch_counts_the_tensors_of_dense_layers(fixture: EngineFixture) -> None:
    layers = Flatten(), Dense("dense1", 3072, 60), ReLU(), Dense("dense2", 60, 10)
    # Outputs of dense1 and its ReLU, logits and log-softmax, and the gradients of all four.
    assert bytes_per_image(fixture, layers) == 4 * (4 * 60 + 4 * 10)


@in_process_of("torch")
def test_torch_counts_the_tensors_of_lenet_in_both_layouts(fixture: EngineFixture) -> None:
    conv1, pool1, conv2, pool2 = 16 * 28 * 28, 16 * 14 * 14, 8 * 10 * 10, 8 * 5 * 5
    # As above for convolutions, ReLUs and dense layers; pooling also stores int64 indices of the maxima.
    tensors = 4 * (4 * conv1 + 2 * pool1 + 4 * conv2 + 2 * pool2 + 2 * (120 + 84) + 4 * 10)
    tensors += 8 * (pool1 + pool2)
    assert tensors <= bytes_per_image(fixture, LENET.layers, variants=("channels_last",)) < 1.1 * tensors
    # oneDNN's reordered copies before and after a convolution depend on the processor.
    assert tensors <= bytes_per_image(fixture, LENET.layers) < 2 * tensors


@in_process_of("keras+torch")
def test_keras_on_torch_counts_at_least_the_tensors_of_the_layers(fixture: EngineFixture) -> None:
    tensors = 4 * (2 * 60 + 2 * 10)  # outputs of both layers, and their gradients
    layers = Flatten(), Dense("dense1", 3072, 60), ReLU(), Dense("dense2", 60, 10)
    assert tensors <= bytes_per_image(fixture, layers) < 10 * tensors


@in_process_of("torch")
def test_torch_counts_are_per_step(fixture: EngineFixture) -> None:
    three, five = (counted(fixture, LENET.layers, steps=steps).host for steps in (3, 5))
    assert three == five
    assert three.count_per_step == int(three.count_per_step) > 40


@in_process_of("torch")
def test_torch_on_the_cpu_has_no_device_counts(fixture: EngineFixture) -> None:
    fixture.build()
    assert fixture.engine.count_allocations(0, 1).device is None
    assert fixture.engine.device_peak_bytes() is None


def check_counting_trains_as_running_does(fixture: EngineFixture) -> None:
    fixture.build()
    fixture.engine.run_steps(0, 3)
    expected = fixture.engine.loss()
    fixture.engine.reset()
    fixture.engine.count_allocations(0, 3)
    assert fixture.engine.loss() == expected


@pytest.mark.parametrize("engine", ["torch", "tf", "jax", "keras+torch", "flux"])
def test_counting_trains_as_running_does(run_check: RunCheck, engine: str) -> None:
    run_check(engine, check_counting_trains_as_running_does)


# The convolution's outputs have at least 1.5 MiB; all other tensors are smaller than 256 KiB.
LARGE = Conv("conv1", 3, 32, kernel=5), ReLU(), MaxPool(14), Flatten(), Dense("dense1", 128, 10)


@in_process_of("tf")
def test_tensorflow_with_onednn_counts_large_tensors(fixture: EngineFixture) -> None:
    # Outputs of the ReLU (in place of the convolution's) and of the pooling gradient.
    assert bytes_per_image(fixture, LARGE, 2) == 2 * 4 * 32 * 28 * 28
    # With model.fit, also the iterator's copy of the images.
    assert bytes_per_image(fixture, LARGE, 2, ("keras_fit",)) == 2 * 4 * 32 * 28 * 28 + 4 * 3 * 32 * 32


@in_process_of("tf")
def test_xla_makes_a_single_allocation(fixture: EngineFixture) -> None:
    assert counted(fixture, LENET.layers, 4, ("xla",)).host.count_per_step == 1


@in_process_of("tf")
def test_tensorflow_with_onednn_does_not_count_small_tensors(fixture: EngineFixture) -> None:
    allocations = counted(fixture, (Flatten(), Dense("dense1", 3072, 10)))
    assert (allocations.host.count_per_step, allocations.device) == (None, None)
    assert allocations.host.coverage.startswith("tensors of 256 KiB and more")
    assert fixture.engine.device_peak_bytes() is None


@in_process_of("tf", **NO_ONEDNN)
def test_tensorflow_without_onednn_counts_tensors_of_every_size(fixture: EngineFixture) -> None:
    # At least the logits and the weight gradients. Which other tensors share memory depends on thread timing.
    small = counted(fixture, (Flatten(), Dense("dense1", 3072, 10))).host
    assert 4 * (8 * 10 + 3072 * 10) <= small.bytes_per_step < 256 << 10
    for variants in ((), ("xla",), ("keras_fit",)):
        host = counted(fixture, LARGE, 2, variants).host
        assert host.coverage.startswith("tensors and buffers of operations")
        assert host.bytes_per_step > 2 * 8 * 4 * 32 * 28 * 28


@in_process_of("tf", **NO_ONEDNN)
def test_a_tensorflow_version_without_allocator_statistics_has_no_counts(fixture: EngineFixture) -> None:
    from polybench.engines.shared import tensorflow as tf_allocations

    with unittest.mock.patch.object(tf_allocations, "_START_STATISTICS", "no_such_function"):
        allocations = counted(fixture, LARGE, 2)
    assert (allocations.host.count_per_step, allocations.device) == (None, None)
    assert allocations.host.coverage.startswith("nothing: ")


@in_process_of("jax")
def test_jax_plans_at_least_one_and_at_most_all_tensors(fixture: EngineFixture) -> None:
    layers = Flatten(), Dense("dense1", 3072, 60), ReLU(), Dense("dense2", 60, 10)
    b1, b2 = (counted(fixture, layers, repeats) for repeats in (1, 2))
    assert (b1.host.count_per_step, b1.device) == (None, None)
    assert "memory_analysis" in b1.host.source
    image = (b2.host.bytes_per_step - b1.host.bytes_per_step) / fixture.images.shape[1]
    assert 4 * 60 <= image <= 4 * (4 * 60 + 4 * 10)
    assert fixture.engine.device_peak_bytes() is None
