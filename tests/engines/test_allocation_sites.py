"""Allocation sites of each engine: the names of its operators or functions, and complete totals."""

from __future__ import annotations

import pytest

from polybench.errors import EngineUnavailable
from polybench.networks.lenet import LENET
from polybench.schema.measurements import AllocationSite
from tests.engines.engine_fixtures import EngineFixture, in_process_of
from tests.engines.test_allocations import NO_ONEDNN


def find_sites(fixture: EngineFixture) -> dict[str, AllocationSite]:
    fixture.build_layers(LENET.layers, repeats=16)
    fixture.engine.run_steps(0, 3)
    sites = fixture.engine.allocation_sites(2, 3).sites
    host = fixture.engine.count_allocations(2, 3).host
    assert host is not None
    assert sum(site.bytes_per_step for site in sites) == pytest.approx(host.bytes_per_step, rel=0.05)
    # The counts are from other steps, and Julia's tasks allocate a little when they wait for each other.
    assert sum(site.count_per_step for site in sites) == pytest.approx(host.count_per_step, rel=0.25)
    sizes = [site.bytes_per_step for site in sites]
    assert sizes == sorted(sizes, reverse=True)
    return {site.location: site for site in sites}


@in_process_of("torch")
def test_torch_reports_operators_of_both_passes(fixture: EngineFixture) -> None:
    sites = find_sites(fixture)
    assert sites["aten::relu"].count_per_step == 2  # lenet has two
    assert sites["aten::relu"].avoidable_allocations_per_step is not None
    assert {"aten::conv2d", "aten::linear", "ConvolutionBackward0", "MaxPool2DWithIndicesBackward0"} <= sites.keys()
    # Only gradients outlive the step.
    assert (
        0
        < sum(site.avoidable_bytes_per_step or 0 for site in sites.values())
        < sum(site.bytes_per_step for site in sites.values())
    )


@in_process_of("tf", **NO_ONEDNN)
def test_tensorflow_reports_operations_without_onednn(fixture: EngineFixture) -> None:
    names = " ".join(find_sites(fixture))
    for operation in ("Conv2DBackpropFilter", "MaxPoolGrad", "Relu", "MatMul"):
        assert operation in names


@pytest.mark.wide  # the same without oneDNN
@in_process_of("tf")
def test_tensorflow_reports_operations_with_onednn(fixture: EngineFixture) -> None:
    assert any("Relu" in name for name in find_sites(fixture))


@in_process_of("flux")
def test_julia_reports_functions_of_packages(fixture: EngineFixture) -> None:
    sites = find_sites(fixture)
    assert any(name.startswith("NNlib: ") for name in sites), list(sites)[:20]
    assert all(site.avoidable_allocations_per_step is None for site in sites.values())


@in_process_of("reference")
def test_an_engine_without_a_source_of_allocation_sites_is_unavailable(fixture: EngineFixture) -> None:
    with pytest.raises(EngineUnavailable, match="no source of allocation sites"):
        fixture.engine.allocation_sites(0, 1)
