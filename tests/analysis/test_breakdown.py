"""Tests that the components of a breakdown add up to the measured difference for all documents."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polybench.analysis.breakdown import (
    BETWEEN_OPERATIONS,
    FIXED_COST,
    MEASUREMENT_DIFFERENCE,
    batch_size_breakdown,
    layer_breakdown,
    startup_breakdown,
    step_time_difference,
)
from polybench.networks.layers import Operation
from polybench.schema.analyses import Breakdown
from polybench.schema.resources import BlockCounters, GarbageCollection, Interference
from polybench.schema.result import ColdStart, Pipeline, Result, StepTimes
from tests.factories import layers, measured, saved_again, study

CONV: tuple[str, Operation] = ("conv2 + relu", "input gradient")
DENSE: tuple[str, Operation] = ("dense1", "weight gradient")
CALL: tuple[str, Operation] = ("step", "call")

GC = GarbageCollection(0.004)
FLUX, TORCH = measured("flux/cpu", 0.050, gc=GC), measured("torch/cpu", 0.020)

seconds = st.floats(1e-6, 1.0)


def total(breakdown: Breakdown) -> float:
    return sum(component.difference_seconds for component in (*breakdown.components, *breakdown.unattributed))


def layer_breakdown_of(baseline: Result = TORCH, other: Result = FLUX, **step_seconds: float) -> Breakdown:
    """Break down 30 ms: 21 ms of one layer, an offset of 2 ms of another, and 4 ms of garbage collection."""
    document = layers(
        study(other, baseline),
        {"flux/cpu": step_seconds.get("flux", 0.051), "torch/cpu": 0.020},
        {"flux/cpu": {CONV: 0.030, DENSE: 0.002, CALL: 0.001}, "torch/cpu": {CONV: 0.009, DENSE: 0.004}},
    )
    found = layer_breakdown(baseline, other, document)
    assert found is not None
    return found


def test_difference_of_steps_has_an_interval_over_processes() -> None:
    found, interval = step_time_difference(TORCH, FLUX)
    assert found == pytest.approx(0.030, rel=1e-3)
    assert interval is not None
    assert interval[0] < found < interval[1]
    assert (
        step_time_difference(*(measured(configuration, 0.02, processes=1) for configuration in ("a/cpu", "b/cpu")))[1]
        is None
    )


def test_the_interval_of_a_difference_leaves_out_rounds_with_interference() -> None:
    quiet, affected = BlockCounters(1.0, 1.0, 0.0, 0.0), BlockCounters(1.0, 1.0, 0.5, 0.0, affected=True)
    rounds = [[0.05] * 3, [0.05] * 3, [0.09] * 3]
    slow = msgspec.structs.replace(
        measured("flux/cpu", 0.05),
        step_times=StepTimes("step", 1, [rounds, [[second * 1.01 for second in one] for one in rounds]]),
        interference=Interference(blocks=[[quiet, quiet, affected]] * 2, blocks_affected=2),
    )
    _, interval = step_time_difference(slow, TORCH)
    without = msgspec.structs.replace(
        slow,
        step_times=StepTimes("step", 1, [process[:2] for process in slow.nested_step_times]),
        interference=Interference(),
    )
    assert interval == pytest.approx(step_time_difference(without, TORCH)[1])


def test_largest_component_is_first() -> None:
    names = [component.name for component in layer_breakdown_of().components]
    assert names == [
        "conv2 + relu, input gradient", "garbage collection", "call", "dense1, weight gradient",
    ]  # fmt: skip
    conv = layer_breakdown_of().components[0]
    assert (conv.seconds, conv.baseline_seconds, conv.kind) == (0.030, 0.009, "input gradient")
    assert conv.difference_seconds == pytest.approx(0.021)
    assert conv.ci95 is not None
    assert conv.ci95[0] < conv.difference_seconds < conv.ci95[1]


def test_swapped_configurations_have_opposite_components() -> None:
    forward, backward = layer_breakdown_of(), layer_breakdown_of(baseline=FLUX, other=TORCH)
    assert [component.difference_seconds for component in backward.components] == [
        -component.difference_seconds for component in forward.components
    ]


def test_unattributed_components_are_named() -> None:
    operations, measurements = layer_breakdown_of().unattributed
    assert (operations.name, measurements.name) == (BETWEEN_OPERATIONS, MEASUREMENT_DIFFERENCE)
    # The layers document has a difference of 31 ms, with 21 + 4 + 1 - 2 ms in components; this study has 30.
    assert operations.difference_seconds == pytest.approx(0.031 - 0.024)
    assert operations.ci95 is not None
    assert operations.ci95[0] < operations.difference_seconds < operations.ci95[1]
    assert measurements.difference_seconds == pytest.approx(-0.001, rel=0.02)


@given(flux=seconds, torch=seconds, step=seconds, conv=seconds, baseline_conv=seconds, gc_seconds=seconds)
def test_components_add_up_to_the_measured_difference(
    flux: float, torch: float, step: float, conv: float, baseline_conv: float, gc_seconds: float
) -> None:
    other = measured("flux/cpu", flux, gc=GarbageCollection(gc_seconds))
    baseline = measured("torch/cpu", torch)
    document = layers(
        study(other, baseline),
        {"flux/cpu": step, "torch/cpu": step},
        {"flux/cpu": {CONV: conv}, "torch/cpu": {CONV: baseline_conv, DENSE: conv}},
    )
    found = layer_breakdown(baseline, other, document)
    assert found is not None
    assert total(found) == pytest.approx(found.difference_seconds, abs=1e-9)
    assert found.difference_seconds == step_time_difference(baseline, other)[0]


def test_components_of_each_configuration_add_up_to_its_step() -> None:
    waiting = measured("flux/cpu", 0.050, pipeline=Pipeline(0.010, 0.040), gc=GC)
    for found, other in ((layer_breakdown_of(), FLUX), (layer_breakdown_of(other=waiting, flux=0.041), waiting)):
        everything = [*found.components, *found.unattributed]
        assert sum(component.seconds or 0.0 for component in everything) == pytest.approx(other.step_seconds)
        assert sum(component.baseline_seconds or 0.0 for component in everything) == pytest.approx(TORCH.step_seconds)
        for component in found.unattributed:
            assert component.seconds is not None
            assert component.baseline_seconds is not None
            assert component.difference_seconds == pytest.approx(component.seconds - component.baseline_seconds)


def test_waiting_for_data_is_not_attributed_to_layers() -> None:
    waiting = measured("flux/cpu", 0.050, pipeline=Pipeline(0.010, 0.040), gc=GC)
    found = layer_breakdown_of(other=waiting, flux=0.041)
    assert {component.name: component.difference_seconds for component in found.components}["waiting for data"] == 0.010
    assert total(found) == pytest.approx(found.difference_seconds)
    assert found.unattributed[1].difference_seconds == pytest.approx(-0.001, rel=0.02)


def test_breakdown_requires_layers_of_both_configurations() -> None:
    document = layers(study(FLUX, TORCH), {"flux/cpu": 0.05, "torch/cpu": 0.02}, {"flux/cpu": {CONV: 0.03}})
    assert layer_breakdown(TORCH, FLUX, document) is None
    assert layer_breakdown(TORCH, measured("tf/cpu", 0.01), document) is None


def test_fixed_overhead_and_images_are_separated() -> None:
    def step(images: int, fixed: float, image: float) -> float:
        return fixed + images * image

    def at(images: int) -> tuple[Result, Result]:
        slow, fast = step(images, 3e-3, 50e-6), step(images, 1e-3, 30e-6)
        return measured("flux/cpu", slow), measured("torch/cpu", fast)

    studies = {images: saved_again(study(*at(images)), batch_size=images) for images in (1, 16, 128)}
    other, baseline = at(128)
    found = batch_size_breakdown(baseline, other, studies)
    assert found is not None
    by_name = {component.name: component for component in found.components}
    assert by_name[FIXED_COST].difference_seconds == pytest.approx(2e-3, rel=0.05)
    assert by_name["the images"].difference_seconds == pytest.approx(128 * 20e-6, rel=0.05)
    assert total(found) == pytest.approx(found.difference_seconds)
    assert batch_size_breakdown(baseline, other, {128: studies[128]}) is None


def test_phases_of_the_cold_start_add_up() -> None:
    other = measured("flux/cpu", 0.05, startup=ColdStart(0.1, 5.0, 1.0, 0.2, 11.0, 0.1))
    found = startup_breakdown(TORCH, other)
    assert found is not None
    assert (found.components[0].name, found.components[0].difference_seconds) == ("first step", pytest.approx(10.7))
    assert found.unattributed == []
    assert total(found) == pytest.approx(found.difference_seconds)
    assert sum(one.difference_seconds for one in found.components) == pytest.approx(found.difference_seconds)
    assert startup_breakdown(measured("tf/cpu", 0.02, startup=None), other) is None
