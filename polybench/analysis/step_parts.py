"""Splits the steps of all configurations into the same parts: layers, the rest of a step, and its passes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from polybench.analysis.breakdown import data_wait_seconds
from polybench.analysis.related_studies import find_layers
from polybench.schema.analyses import OperationDifference, PartKind, StepPart
from polybench.schema.measurements import STEP, ConfigurationLayers, LayerRow, LayersDocument
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument
from polybench.stats.operation_sums import select_pass, sum_operations

_NOTABLE = 0.02
"""Fraction of a step from which a part that the study knows has a row."""

Rows = dict[str, list[LayerRow]]
"""Operations of a configuration, by layer."""


class SharedLayers(NamedTuple):
    """A layers document, and the configurations of a study whose layers it has."""

    document: LayersDocument
    configurations: list[str]


def find_shared_layers(
    study: StudyDocument, configurations: Sequence[str], baseline: str, documents: Sequence[LayersDocument]
) -> SharedLayers | None:
    """Return the newest of the related documents that have the baseline's layers, and those of most configurations."""
    found = [
        SharedLayers(document, names)
        for document in documents
        if (names := [name for name in configurations if find_layers(study, [document], [name])])
    ]
    return max(found, key=lambda one: (baseline in one.configurations, len(one.configurations)), default=None)


def step_parts(results: Sequence[Result], baseline: str, layers: SharedLayers | None) -> list[StepPart]:
    """Return the layers in the order of the network, and the other parts.

    The parts up to the whole step add up to it; those after it are the whole step beside which the layers were timed,
    and the passes. What the study itself knows is known without layers as well. A layer whose time is a negative
    difference of two times counts as 0.
    """
    timed = {one.configuration: one for one in layers.document.configurations} if layers else {}
    timed = {name: timed[name] for name in (layers.configurations if layers else ())}
    rows = {name: _by_layer(one) for name, one in timed.items()}
    names = dict.fromkeys(layer for one in rows.values() for layer in one if layer != STEP)
    parts = [_layer(name, rows, baseline) for name in names]
    if any(STEP in one for one in rows.values()):
        of_step = {name: one[STEP] for name, one in rows.items() if STEP in one}
        parts.append(_sum("loss, update, call", "other operations", of_step))
    parts += _known_to_study(results)
    if rows:
        between = {one.configuration: one.step_seconds - _total(parts, one.configuration) for one in results}
        seconds = {name: between[name] for name in rows}
        parts.append(StepPart(name="between the layers", kind="between the layers", seconds=seconds))
    whole = {one.configuration: one.step_seconds for one in results}
    beside = {name: one.step_seconds for name, one in timed.items() if one.step_seconds is not None}
    return [
        *parts,
        StepPart(name="whole step", kind="whole step", seconds=whole),
        *([StepPart(name="beside layers", kind="beside the layers", seconds=beside)] if beside else []),
        *_passes(timed),
    ]


def _by_layer(layers: ConfigurationLayers) -> Rows:
    rows: Rows = {}
    for row in layers.rows:
        rows.setdefault(row.layer, []).append(row)
    return rows


def _sum(
    name: str, kind: PartKind, rows: Mapping[str, Sequence[LayerRow]], largest: OperationDifference | None = None
) -> StepPart:
    sums = {configuration: sum_operations(one) for configuration, one in rows.items()}
    return StepPart(
        name=name,
        kind=kind,
        seconds={configuration: max(seconds, 0.0) for configuration, (seconds, _) in sums.items()},
        ci95={configuration: interval for configuration, (_, interval) in sums.items() if interval},
        largest_difference=largest,
    )


def _total(parts: Sequence[StepPart], configuration: str) -> float:
    return sum(part.seconds.get(configuration, 0.0) for part in parts)


def _layer(layer: str, rows: dict[str, Rows], baseline: str) -> StepPart:
    of_layer = {name: one[layer] for name, one in rows.items() if layer in one}
    return _sum(layer, "layer", of_layer, _largest(layer, rows, baseline))


def _largest(layer: str, rows: dict[str, Rows], baseline: str) -> OperationDifference | None:
    """Return the operation with the largest difference between the slowest configuration and the baseline.

    If the baseline itself is the slowest one, the fastest one takes its place. Intervals that overlap, or are
    too wide, show no difference.
    """
    by_operation: dict[str, dict[str, LayerRow]] = {}
    for name, one in rows.items():
        for row in one.get(layer, ()):
            by_operation.setdefault(row.operation, {})[name] = row
    found: list[OperationDifference] = []
    for of_operation in by_operation.values():
        slowest = max(of_operation, key=lambda name: of_operation[name].seconds_per_step)
        fastest = min(of_operation, key=lambda name: of_operation[name].seconds_per_step)
        other = baseline if baseline in of_operation and baseline != slowest else fastest
        slow, fast = of_operation[slowest], of_operation[other]
        if other != slowest and not (slow.has_wide_time or fast.has_wide_time or _overlap(slow, fast)):
            found.append(
                OperationDifference(
                    operation=slow.operation,
                    configuration=slowest,
                    seconds=slow.seconds_per_step,
                    other=other,
                    other_seconds=fast.seconds_per_step,
                )
            )
    return max(found, key=lambda one: one.seconds - one.other_seconds, default=None)


def _overlap(slow: LayerRow, fast: LayerRow) -> bool:
    return slow.ci95 is not None and fast.ci95 is not None and slow.ci95[0] <= fast.ci95[1]


def _known_to_study(results: Sequence[Result]) -> list[StepPart]:
    """Return the parts that the study knows, if they are notable in any configuration."""
    known: dict[PartKind, Callable[[Result], float | None]] = {
        "garbage collection": lambda result: result.gc.seconds_per_step,
        "waiting for data": data_wait_seconds,
    }
    parts = []
    for kind, find in known.items():
        seconds = {one.configuration: value for one in results if (value := find(one)) is not None}
        if any(seconds.get(one.configuration, 0.0) > _NOTABLE * one.step_seconds for one in results):
            parts.append(StepPart(name=kind, kind=kind, seconds=seconds))
    return parts


def _passes(timed: Mapping[str, ConfigurationLayers]) -> list[StepPart]:
    """Sum the layers by pass, unless there is only one pass."""
    by_pass = {
        name: {
            configuration: rows
            for configuration, one in timed.items()
            if (rows := select_pass(one.rows, backward=name == "backward"))
        }
        for name in ("forward", "backward")
    }
    if not all(by_pass.values()):
        return []
    return [
        _sum("layers, forward", "forward", by_pass["forward"]),
        _sum("layers, backward", "backward", by_pass["backward"]),
    ]
