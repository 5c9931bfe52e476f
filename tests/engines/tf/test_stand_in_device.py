"""The tf engine's path to a device, with real values in float64 on a stand-in device: see `stand_in_device`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from polybench.networks.lenet import LENET
from polybench.networks.model import Model
from polybench.parity_check.check import CheckRequest, ParityChecker
from polybench.schema.parity import ParityCheck
from tests import small_datasets
from tests.engines.engine_fixtures import EngineFixture, in_process_of
from tests.example_networks import EVERYTHING, SEQUENCES
from tests.worker_sessions import InProcess

OWN_PROCESS = {"POLYBENCH_TEST_STAND_IN": "1"}  # devices cannot be changed later


def check(model: Model) -> ParityCheck:
    from tests.engines.tf import stand_in_device

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "scratch").mkdir()
        files = small_datasets.files(folder, model=model)
        request = CheckRequest(small_datasets.job(model), files.weights, files.epoch, 3, 60.0)
        reference = InProcess("polybench.engines.reference.engine:ReferenceEngine")
        checker = ParityChecker(reference, folder / "scratch", folder / "cache")
        return checker.check(InProcess(f"{stand_in_device.__name__}:StandInEngine"), request)


@pytest.mark.slow
@pytest.mark.cuda_level("tf", "computed on a stand-in")
@in_process_of("tf", **OWN_PROCESS)
def test_networks_pass_the_parity_check_on_a_second_device(fixture: EngineFixture) -> None:
    for model in (LENET, EVERYTHING, SEQUENCES):
        parity = check(model)
        assert parity.status == "pass", (model.name, parity.reason)


@pytest.mark.cuda_level("tf", "computed on a stand-in")
@in_process_of("tf", **OWN_PROCESS)
def test_weights_batches_and_loss_are_on_the_device(fixture: EngineFixture) -> None:
    from tests.engines.tf.stand_in_device import BatchesOnCPU, StandInEngine, devices

    for engine, expected in ((StandInEngine(), {"CPU:1"}), (BatchesOnCPU(), {"CPU:0", "CPU:1"})):
        engine.build(small_datasets.job(), fixture.weights)
        engine.load(fixture.images, fixture.labels)
        engine.run_steps(0, 1)
        assert devices(engine) == expected
