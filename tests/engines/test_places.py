"""Which operators and functions each engine names, and that nothing of what it counts is lost."""

from __future__ import annotations

import pytest

from polybench.core.document.places import Place
from polybench.core.errors import Unavailable
from polybench.models.lenet import LENET
from tests.engines.lab import Lab, in_process_of
from tests.engines.test_allocations import NO_ONEDNN, ONEDNN


def places(lab: Lab) -> dict[str, Place]:
    lab.build_layers(LENET.layers, repeats=16)
    lab.engine.run_steps(0, 3)
    found = lab.engine.allocation_places(2, 3).places
    host = lab.engine.count_allocations(2, 3).host
    assert host is not None
    assert sum(place.bytes_per_step for place in found) == pytest.approx(host.bytes_per_step, rel=0.05)
    # They are counted in other steps: Julia's tasks allocate, little, when one has to wait for another.
    assert sum(place.calls_per_step for place in found) == pytest.approx(host.count_per_step, rel=0.25)
    sizes = [place.bytes_per_step for place in found]
    assert sizes == sorted(sizes, reverse=True)
    return {place.place: place for place in found}


@in_process_of("torch")
def test_torch_names_operators_of_both_passes(lab: Lab) -> None:
    found = places(lab)
    assert found["aten::relu"].calls_per_step == 2  # lenet has two
    assert found["aten::relu"].reusable_per_step is not None
    assert {
        "aten::conv2d",
        "aten::linear",
        "ConvolutionBackward0",
        "MaxPool2DWithIndicesBackward0",
    } <= found.keys()
    # Nothing that it allocates for outlives the step but the gradients.
    assert (
        0
        < sum(place.reusable_bytes_per_step or 0 for place in found.values())
        < sum(place.bytes_per_step for place in found.values())
    )


@in_process_of("tf", **NO_ONEDNN)
def test_tensorflow_names_operations(lab: Lab) -> None:
    names = " ".join(places(lab))
    for operation in ("Conv2DBackpropFilter", "MaxPoolGrad", "Relu", "MatMul"):
        assert operation in names


@in_process_of("tf", **ONEDNN)
def test_tensorflow_names_operations_of_its_pool_where_onednn_is_on(lab: Lab) -> None:
    assert any("Relu" in name for name in places(lab))


@in_process_of("flux")
def test_julia_names_functions_of_packages(lab: Lab) -> None:
    found = places(lab)
    assert any(name.startswith("NNlib: ") for name in found)
    assert all(place.reusable_per_step is None for place in found.values())


@in_process_of("reference")
def test_an_engine_without_a_source_says_so(lab: Lab) -> None:
    with pytest.raises(Unavailable, match="nothing tells where"):
        lab.engine.allocation_places(0, 1)
