"""Tests of the layers document: sums of operations and unattributed time add up to the step."""

from __future__ import annotations

import contextlib
import tomllib
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from polybench.experiments import layers
from polybench.experiments.layers import run_layers
from polybench.networks import MODELS
from polybench.networks.timed_layers import split_layers
from polybench.protocol.calls import OperationTime
from polybench.results.layers import OperationTimes, build_layers_document
from polybench.runner.progress import NullProgress
from polybench.schema.measurements import ConfigurationLayers, LayersDocument
from polybench.schema.options import Precision
from polybench.schema.resources import BlockCounters, Interference
from polybench.schema.result import StepTimes
from polybench.storage.store import Store
from tests.factories import WORKLOAD, measured, study, unmeasured
from tests.simulated_machine import Machine, Script, study_of

RESNET = MODELS["resnet32"]


def times(seconds: float = 1e-4, gc_seconds: float | None = None) -> OperationTimes:
    """Return two processes of two rounds; operations take 1.5 times as long in the second process."""

    def one_round(factor: float) -> list[OperationTime]:
        operations = [
            OperationTime((index,), operation, factor * seconds, gc_seconds)
            for index, layer in enumerate(split_layers(RESNET))
            for operation in ("forward", *(gradient.operation for gradient in layer.gradients()))
        ]
        return [*operations, OperationTime((), "loss", factor * seconds, gc_seconds)]

    return [[one_round(1.0)] * 2, [one_round(1.5)] * 2]


def document(found: dict[str, OperationTimes], *, expand_blocks: bool = False) -> LayersDocument:
    step_times = StepTimes("step", 1, [[[0.03, 0.04, 0.09], [0.04]], [[0.05], [0.05]]])
    compared = study(
        measured("torch/cpu", 0.04, step_times=step_times),
        measured("torch+compile/cpu", 0.04, step_times=step_times),
        unmeasured("flux/cpu", "unavailable", "no Julia", "polybench setup flux"),
    )
    return build_layers_document(compared, RESNET, found, ["torch+compile/cpu"], expand_blocks=expand_blocks)


def configuration_layers(found: OperationTimes, *, expand_blocks: bool = False) -> ConfigurationLayers:
    return document({"torch/cpu": found}, expand_blocks=expand_blocks).configurations[0]


STEP_SECONDS = ((0.16 / 3 + 0.04) / 2 + 0.05) / 2
"""The mean over processes of the mean over rounds."""


def test_operations_and_unattributed_time_add_up_to_the_step() -> None:
    one = configuration_layers(times())
    assert one.step_seconds == pytest.approx(STEP_SECONDS)
    assert one.unattributed_seconds is not None
    total = sum(row.seconds_per_step for row in one.rows)
    assert total + one.unattributed_seconds == pytest.approx(one.step_seconds)
    assert one.ci95 is not None
    assert one.ci95[0] < one.unattributed_seconds < one.ci95[1]


def test_rounds_with_interference_are_left_out() -> None:
    def counters(*affected: bool) -> list[BlockCounters]:
        return [BlockCounters(1.0, 2.0, 0.5, 0.0, affected=one) for one in affected]

    blocks = [counters(False, False, True), counters(False, True, False)]
    step_times = StepTimes("step", 1, [[[0.04], [0.05], [0.09]], [[0.04], [0.30], [0.05]]])
    quiet, disturbed = times()[0][0], times(seconds=9e-4)[0][0]
    result = measured("torch/cpu", 0.04, step_times=step_times, interference=Interference(blocks=blocks))
    found = [[quiet, quiet, disturbed], [quiet, disturbed, quiet]]
    (one,) = build_layers_document(study(result), RESNET, {"torch/cpu": found}, []).configurations
    assert one.step_seconds == pytest.approx(0.045)
    assert one.rows[0].seconds == [[pytest.approx(1e-4)] * 2] * 2
    assert one.step_times == StepTimes("step", 1, [[[0.04], [0.05]], [[0.04], [0.05]]])


def test_block_is_the_sum_of_its_layers() -> None:
    collapsed, expanded = configuration_layers(times()), configuration_layers(times(), expand_blocks=True)
    assert len(collapsed.rows) < len(expanded.rows)
    forward = {(row.layer, row.operation): row for row in collapsed.rows}["stage1.block1 + relu", "forward"]
    layers = [row for row in expanded.rows if row.layer.startswith("stage1.block1") and row.operation == "forward"]
    assert forward.seconds_per_step == pytest.approx(5 * 1.25e-4)
    assert len(layers) == 5
    assert forward.flops == sum(row.flops or 0 for row in layers) == 2 * 128 * 2 * 32 * 32 * 16 * 16 * 9
    assert forward.seconds == [[pytest.approx(5e-4)] * 2, [pytest.approx(7.5e-4)] * 2]


def test_rows_are_in_the_order_of_the_network() -> None:
    rows = configuration_layers(times()).rows
    assert [(row.layer, row.operation) for row in rows[:3]] == [
        ("conv1", "forward"), ("conv1", "weight gradient"), ("norm1 + relu", "forward"),
    ]  # fmt: skip
    assert (rows[-1].layer, rows[-1].operation, rows[-1].flops) == ("step", "loss", None)


def test_garbage_collection_is_reported_separately() -> None:
    assert configuration_layers(times()).rows[0].gc_seconds_per_step is None
    block = configuration_layers(times(gc_seconds=1e-5)).rows[4]
    assert block.gc_seconds_per_step == pytest.approx(5e-5)


def test_configurations_without_layers_have_a_step_time_or_a_reason() -> None:
    _, compiled, flux = document({"torch/cpu": times()}).configurations
    assert compiled.compiled_as_whole
    assert compiled.rows == []
    assert (compiled.step_seconds, compiled.unattributed_seconds) == (pytest.approx(STEP_SECONDS), None)
    assert (flux.status, flux.reason, flux.step_seconds) == ("unavailable", "no Julia", None)


def test_processes_without_measurements_are_left_out() -> None:
    assert configuration_layers([[], *times()[1:]]).rows[0].seconds_per_step == pytest.approx(1.5e-4)
    assert configuration_layers([[]]).rows == []


def test_values_of_bf16_have_half_the_bytes() -> None:
    def bytes_moved(precision: Precision) -> list[int | None]:
        result = measured("torch/cpu", 0.04, workload=msgspec.structs.replace(WORKLOAD, precision=precision))
        found = build_layers_document(study(result), RESNET, {"torch/cpu": times()}, [], expand_blocks=True)
        return [row.min_bytes_moved for row in found.configurations[0].rows]

    full, half = bytes_moved("fp32"), bytes_moved("bf16")
    assert any(full)
    assert full == [None if count is None else 2 * count for count in half]


def simulated(store: Store, model: str, **options: Any) -> LayersDocument:
    """Return what a log of the simulated machine says when it is read again."""
    scripts = {"torch": Script(0.004)}
    with Machine().simulate(scripts):
        run_layers(study_of(scripts, model=model, processes=2), NullProgress(), store=store, **options)
    (document,) = store.others("layers")
    assert isinstance(document, LayersDocument)
    return document


def test_of_a_single_layer_the_network_around_it_is_left_out(tmp_path: Path) -> None:
    store = Store(tmp_path)
    (one,) = simulated(store, "conv 8->8 3x3 pad 1 relu on 16x16").configurations
    assert {row.layer for row in one.rows} == {"layer + relu"}
    assert (one.step_seconds, one.unattributed_seconds) == (None, None)
    (summary,) = store.other_summaries("layers")
    assert (summary.kind, summary.model, summary.fastest) == ("layers", "conv 8->8 3x3 pad 1 relu on 16x16", None)
    assert [row.is_measured for row in summary.configurations] == [True]


def test_a_log_says_whether_blocks_are_expanded(tmp_path: Path) -> None:
    blocks = {layer.block for layer in split_layers(RESNET) if layer.block != layer.name}
    for expands in (False, True):
        (one,) = simulated(Store(tmp_path / str(expands)), "resnet32", expand_blocks=expands).configurations
        assert blocks.isdisjoint({row.layer for row in one.rows}) == expands


def test_layers_are_measured_without_trainings_and_counting_passes() -> None:
    scripts = {"torch": Script(0.004)}
    with Machine().simulate(scripts):
        asked = study_of(scripts, processes=1, epochs=2, accuracy=True, metrics=True)
        document = run_layers(asked, NullProgress()).document
    study = tomllib.loads(document.study)
    assert "epochs" not in study
    assert (study["accuracy"], study["metrics"]) == (False, False)


def test_the_inputs_of_layers_are_those_of_the_seed() -> None:
    scripts, reference = {"torch": Script(0.004)}, mock.Mock()
    with (
        Machine().simulate(scripts),
        mock.patch.object(layers, "start_reference", return_value=contextlib.nullcontext(reference)),
    ):
        run_layers(study_of(scripts, processes=1, seed=7), NullProgress())
    job = reference.request.call_args_list[0].args[0].arguments.job
    assert (job.seed, job.dtype) == (7, "float64")


def test_exported_programs_are_of_a_layer_within_a_block(tmp_path: Path) -> None:
    scripts = {"torch": Script(0.004), "tf": Script(0.008)}
    with Machine().simulate(scripts), mock.patch.object(layers, "write_programs", return_value=["one"]) as write:
        asked = study_of(scripts, processes=1, rounds_per_process=1, steps_per_round=1, model="resnet32")
        run_layers(asked, NullProgress(), export_folder=tmp_path)
    folder, layer, _operation, tensors, *_ = write.call_args.args
    assert (folder, split_layers(RESNET)[int(tensors.stem)].name) == (tmp_path, layer.name)
