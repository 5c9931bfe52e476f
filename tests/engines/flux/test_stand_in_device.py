"""The flux engine's path to a device, with real values in float64 on a stand-in device: see `stand_in_device`."""

from __future__ import annotations

import pytest

from polybench.networks.lenet import LENET
from tests import small_datasets
from tests.engines.engine_fixtures import EngineFixture, in_process_of
from tests.engines.stand_in_parity import check
from tests.example_networks import EVERYTHING, PATCHED, SEQUENCES, TEXT

MODULE = "tests.engines.flux.stand_in_device"
OWN_PROCESS = {"POLYBENCH_TEST_STAND_IN": "1"}  # the fake CUDA.jl stays in its process


@pytest.mark.wide  # compiles a step for another type of array
@pytest.mark.cuda_level("flux", "computed on a stand-in")
@in_process_of("flux", **OWN_PROCESS)
def test_weights_and_batches_are_on_the_device(fixture: EngineFixture) -> None:
    from tests.engines.flux.stand_in_device import LabelsOnCPU, StandInEngine

    for engine, expected in ((StandInEngine(), {"JLArray"}), (LabelsOnCPU(), {"JLArray", "Array"})):
        engine.build(small_datasets.job(), fixture.weights)
        engine.load(fixture.images, fixture.labels)
        assert engine.array_types() == expected


@pytest.mark.wide  # compiles each network for minutes
@pytest.mark.cuda_level("flux", "computed on a stand-in")
@in_process_of("flux", **OWN_PROCESS)
def test_networks_pass_the_parity_check_on_arrays_of_a_gpu(fixture: EngineFixture) -> None:
    for model in (LENET, EVERYTHING, SEQUENCES, PATCHED, TEXT):
        parity = check(f"{MODULE}:StandInEngine", model)
        assert parity.status == "pass", (model.name, parity.reason)
