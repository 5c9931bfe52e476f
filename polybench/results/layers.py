"""Computes the layers document from its log: the operation times of each round. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import get_args

import msgspec

from polybench.log import AnyEvent
from polybench.networks import find_model
from polybench.networks.layers import Operation
from polybench.networks.model import Model
from polybench.networks.single_layer import is_single_layer, timed_layer_name
from polybench.networks.timed_layers import TimedLayer, split_layers
from polybench.planning.study_file import stored_study
from polybench.protocol.calls import OperationTime
from polybench.results.document import damage_named, derive_measured, within_bounds
from polybench.results.interference import drop_affected_rounds
from polybench.results.measured import measured_study
from polybench.schema.measurements import STEP, ConfigurationLayers, LayerRow, LayersDocument
from polybench.schema.options import Workload
from polybench.schema.result import Result, status_fields
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import mean_over_rounds

OperationTimes = list[list[list[OperationTime]]]
"""Times of one configuration as [process][round][operation], with the same operations in every round."""

_OPERATIONS: tuple[Operation, ...] = get_args(Operation)


def derive_layers(
    events: Iterable[AnyEvent], *, expand_blocks: bool | None = None, salvage: bool = False
) -> LayersDocument:
    """Compute the layers document of a log; `expand_blocks` is by default that of the header.

    Of the network of a single layer, it has only this layer's rows. Raises DamagedLog as `derive`.
    """
    measured = measured_study(events, salvage=salvage)
    study, header = derive_measured(measured), measured.header
    assert header is not None
    with damage_named(header.id):
        model = find_model(stored_study(header.study, header.id).model)
        document = build_layers_document(
            study,
            model,
            {run.configuration.name: run.operations for run in measured.runs},
            [run.configuration.name for run in measured.runs if run.planned.compiled_as_whole],
            expand_blocks=header.expand_blocks if expand_blocks is None else expand_blocks,
            only_layer=timed_layer_name(model) if is_single_layer(model.name) else None,
        )
    return within_bounds(document)


def build_layers_document(
    study: StudyDocument,
    model: Model,
    times: Mapping[str, OperationTimes],
    compiled_as_whole: Sequence[str],
    *,
    expand_blocks: bool = False,
    only_layer: str | None = None,
) -> LayersDocument:
    """Build the document of measured operation times, by configuration.

    `study` has the times of whole steps. Rounds with interference are left out, as in `compare`. With
    `expand_blocks`, each layer of a residual block has its own row. With `only_layer`, the document has only this
    layer's rows and no times of whole steps.
    """
    layers = split_layers(model)
    configurations = [
        _configuration_layers(
            result,
            layers,
            times.get(result.configuration, []),
            result.configuration in compiled_as_whole,
            expand_blocks,
        )
        for result in study.results
    ]
    if only_layer is not None:
        configurations = [_keep_layer(configuration, only_layer) for configuration in configurations]
    return LayersDocument(
        **study.header(),
        study=study.study,
        settings=study.settings,
        interference=study.interference,
        warnings=[*study.warnings, *(f"{r.configuration}: {text}" for r in study.results for text in r.warnings)],
        configurations=configurations,
    )


_WHOLE_STEP_FIELDS = ("step_seconds", "step_ci95", "unattributed_seconds", "ci95", "gc_seconds_per_step")


def _keep_layer(configuration: ConfigurationLayers, layer: str) -> ConfigurationLayers:
    rows = [row for row in configuration.rows if row.layer == layer]
    peak = configuration.peak and msgspec.structs.replace(configuration.peak, fraction=None)
    return msgspec.structs.replace(configuration, rows=rows, peak=peak, **dict.fromkeys(_WHOLE_STEP_FIELDS))


def _configuration_layers(
    result: Result, layers: Sequence[TimedLayer], times: OperationTimes, compiled_as_whole: bool, expand_blocks: bool
) -> ConfigurationLayers:
    configuration = ConfigurationLayers(
        **status_fields(result),
        parity=result.parity.status,
        compiled_as_whole=compiled_as_whole,
        gc_seconds_per_step=result.gc.seconds_per_step,
        versions=result.versions,
        peak=result.peak,
    )
    if result.step_times and not result.busy:
        unaffected = drop_affected_rounds(result.step_times.values, result.interference.blocks)
        times = [_undisturbed(rounds, process) for rounds, process in zip(times, unaffected, strict=False)]
        values = [[one_round for one_round in process if one_round] for process in unaffected]
        configuration.step_times = msgspec.structs.replace(result.step_times, values=values)
        steps = [[fmean(one_round) for one_round in process] for process in values]
        configuration.step_seconds, configuration.step_ci95 = mean_over_rounds(steps)
        if any(times):
            configuration.rows = _rows(layers, result.workload, times, expand_blocks)
            unattributed = _unattributed(steps, times)
            configuration.unattributed_seconds, configuration.ci95 = mean_over_rounds(unattributed)
    return configuration


def _undisturbed(rounds: list[list[OperationTime]], steps: Sequence[Sequence[float]]) -> list[list[OperationTime]]:
    """Return the operations of the rounds in which the whole steps are free of interference."""
    return [operations for operations, one_round in zip(rounds, steps, strict=False) if one_round]


def _unattributed(steps: list[list[float]], times: OperationTimes) -> list[list[float]]:
    """Subtract the sum of operation times from the step time, as [process][round]."""
    return [
        [step - sum(timed.seconds for timed in operations) for step, operations in zip(*rounds, strict=False)]
        for rounds in zip(steps, times, strict=False)
    ]


def _rows(
    layers: Sequence[TimedLayer], workload: Workload, times: OperationTimes, expand_blocks: bool
) -> list[LayerRow]:
    """Return rows in the order of the network. Operations of the step as a whole come last."""
    groups: dict[tuple[str, Operation], list[int]] = {}
    for number, timed in enumerate(_first_round(times)):
        name = _row_name([layers[index] for index in timed.layers], expand_blocks)
        groups.setdefault((name, timed.operation), []).append(number)
    names = [name for layer in layers for name in (layer.block, layer.name)]
    order = sorted(groups, key=lambda key: ([*names, STEP].index(key[0]), _OPERATIONS.index(key[1])))
    return [_row(*key, groups[key], layers, workload, times) for key in order]


def _first_round(times: OperationTimes) -> list[OperationTime]:
    return next(operations for rounds in times for operations in rounds)


def _row_name(layers: Sequence[TimedLayer], expand_blocks: bool) -> str:
    """Return the row of an operation of these layers; only a sum over the layers of a block has several."""
    if not layers:
        return STEP
    return layers[0].name if expand_blocks and len(layers) == 1 else layers[0].block


def _row(
    layer: str,
    operation: Operation,
    numbers: list[int],
    layers: Sequence[TimedLayer],
    workload: Workload,
    times: OperationTimes,
) -> LayerRow:
    """Sum the operations with these numbers within a round."""
    seconds = [[sum(operations[number].seconds for number in numbers) for operations in rounds] for rounds in times]
    mean, interval = mean_over_rounds(seconds)
    first_round = _first_round(times)
    indices = [index for number in numbers for index in first_round[number].layers]
    batch_size, value_bytes = workload.batch_size, 2 if workload.precision == "bf16" else 4
    flops = [count for index in indices if (count := layers[index].flops(operation, batch_size)) is not None]
    bytes_moved = [
        count
        for index in indices
        if (count := layers[index].min_bytes_moved(operation, batch_size, value_bytes)) is not None
    ]
    return LayerRow(
        layer=layer,
        operation=operation,
        seconds_per_step=mean,
        ci95=interval,
        gc_seconds_per_step=_gc_seconds(numbers, times),
        flops=sum(flops) if flops else None,
        min_bytes_moved=sum(bytes_moved) if bytes_moved else None,
        seconds=seconds,
    )


def _gc_seconds(numbers: list[int], times: OperationTimes) -> float | None:
    known = [[operations[number].gc_seconds for number in numbers] for rounds in times for operations in rounds]
    sums = [sum(seconds) for seconds in known if None not in seconds]  # type: ignore[arg-type]
    return fmean(sums) if sums else None
