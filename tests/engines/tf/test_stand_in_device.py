"""The tf engine's path to a device, with real values in float64 on a stand-in device: see `stand_in_device`."""

from __future__ import annotations

import pytest

from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from tests import small_datasets
from tests.engines.engine_fixtures import EngineFixture, in_process_of
from tests.engines.stand_in_parity import check
from tests.example_networks import EVERYTHING, SEQUENCES

OWN_PROCESS = {"POLYBENCH_TEST_STAND_IN": "1"}  # devices cannot be changed later


def assert_pass(*models: Model) -> None:
    for model in models:
        parity = check("tests.engines.tf.stand_in_device:StandInEngine", model)
        assert parity.status == "pass", (model.name, parity.reason)


@pytest.mark.wide
@pytest.mark.cuda_level("tf", "computed on a stand-in")
@in_process_of("tf", **OWN_PROCESS)
def test_more_networks_pass_the_parity_check_on_a_second_device(fixture: EngineFixture) -> None:
    assert_pass(EVERYTHING, SEQUENCES)


@pytest.mark.cuda_level("tf", "computed on a stand-in")
@in_process_of("tf", **OWN_PROCESS)
def test_networks_pass_the_parity_check_on_a_second_device(fixture: EngineFixture) -> None:
    assert_pass(LENET)


@pytest.mark.cuda_level("tf", "computed on a stand-in")
@in_process_of("tf", **OWN_PROCESS)
def test_weights_batches_and_loss_are_on_the_device(fixture: EngineFixture) -> None:
    from tests.engines.tf.stand_in_device import BatchesOnCPU, StandInEngine, devices

    for engine, expected in ((StandInEngine(), {"CPU:1"}), (BatchesOnCPU(), {"CPU:0", "CPU:1"})):
        engine.build(small_datasets.job(), fixture.weights)
        engine.load(fixture.images, fixture.labels)
        engine.run_steps(0, 1)
        assert devices(engine) == expected
