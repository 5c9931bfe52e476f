"""The torch engine's path to a device, with real values in float64 on a stand-in device: see `stand_in_device`."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from polybench.errors import ConfigurationFailed
from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.networks.resnet32 import RESNET32
from polybench.schema.parity import ParityCheck
from tests import small_datasets
from tests.engines import stand_in_parity
from tests.engines.engine_fixtures import EngineFixture, in_process_of
from tests.engines.pipeline_checks import (
    returns_augmented_batches_with_any_number_of_workers,
    separates_data_wait_from_training_time,
)
from tests.example_networks import EVERYTHING, PATCHED, TEXT

OWN_PROCESS = {"POLYBENCH_TEST_STAND_IN": "1"}  # a registered device stays in its process


def check(engine: str, model: Model) -> ParityCheck:
    from tests.engines.torch import stand_in_device  # skips the test if PyTorch is too old

    return stand_in_parity.check(f"{stand_in_device.__name__}:{engine}", model)


def assert_pass(*models: Model) -> None:
    for model in models:
        parity = check("StandInEngine", model)
        assert parity.status == "pass", (model.name, parity.reason)


@pytest.mark.cuda_level("torch", "computed on a stand-in")
@in_process_of("torch", **OWN_PROCESS)
def test_networks_pass_the_parity_check_on_a_second_device(fixture: EngineFixture) -> None:
    from tests.engines.torch.stand_in_device import NAME, StandInEngine

    assert_pass(EVERYTHING, TEXT)
    engine = StandInEngine()
    engine.build(small_datasets.job(), fixture.weights)
    engine.load(fixture.images, fixture.labels)
    tensors = [*engine._tensors.values(), *engine._batches[0]]
    assert {tensor.device.type for tensor in tensors} == {NAME}


@pytest.mark.wide
@pytest.mark.cuda_level("torch", "computed on a stand-in")
@in_process_of("torch", **OWN_PROCESS)
def test_more_networks_pass_the_parity_check_on_a_second_device(fixture: EngineFixture) -> None:
    assert_pass(LENET, PATCHED, RESNET32)


@pytest.mark.cuda_level("torch", "computed on a stand-in")
@in_process_of("torch", **OWN_PROCESS)
def test_a_tensor_left_on_the_cpu_fails(fixture: EngineFixture) -> None:
    for bug in ("LabelsOnCPU", "MasksOnCPU"):
        with pytest.raises(ConfigurationFailed, match="same device"):
            check(bug, EVERYTHING)


@in_process_of("torch", **OWN_PROCESS)
def test_a_snapshot_after_the_update_fails(fixture: EngineFixture) -> None:
    assert check("LateSnapshot", LENET).status == "fail"


@in_process_of("torch", **OWN_PROCESS)
def test_a_checkpoint_of_the_device_continues_the_training(fixture: EngineFixture) -> None:
    from tests.engines.torch.stand_in_device import StandInEngine

    engine = StandInEngine()
    engine.build(small_datasets.job(), fixture.weights)
    engine.load(fixture.images, fixture.labels)
    engine.run_steps(0, 2)
    state = engine.training_state()
    engine.run_steps(2, 1)
    loss = engine.loss()
    engine.reset()
    engine.restore_training_state(state)
    engine.run_steps(2, 1)
    assert engine.loss() == loss


@pytest.mark.wide  # test_requirements.py has the pipeline, and test_engine.py its memory for a device
@pytest.mark.cuda_level("torch", "computed on a stand-in")
@in_process_of("torch", POLYBENCH_TEST_STAND_IN="pipeline")  # with another number of threads
def test_the_input_pipeline_fills_batches_on_the_device(fixture: EngineFixture) -> None:
    from tests.engines.torch.stand_in_device import NAME, StandInEngine

    on_device = copy.copy(fixture)
    engine: Any = StandInEngine()
    on_device.engine = engine
    returns_augmented_batches_with_any_number_of_workers(on_device)
    assert {tensor.device.type for tensor in engine._batches[0]} == {NAME}
    separates_data_wait_from_training_time(on_device)
    engine.close()
