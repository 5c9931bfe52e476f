"""The times of layers, round by round, to their document. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import get_args

import msgspec

from polybench.core.document.layers import STEP, EngineLayers, LayerRow, LayersDocument, Part
from polybench.core.document.result import Result
from polybench.core.document.row import fields_of
from polybench.core.document.study import StudyDocument
from polybench.core.model import Model
from polybench.core.pieces import Piece, pieces
from polybench.core.statistics import mean_of_rounds
from polybench.wire.layer_messages import PartTimed

Times = list[list[list[PartTimed]]]
"""Of one cell: [process][round][part]; every round has the same parts in the same order."""

_PARTS: tuple[Part, ...] = get_args(Part)


def layers_document(
    study: StudyDocument,
    model: Model,
    times: Mapping[str, Times],
    whole_steps: Sequence[str],
    *,
    inside: bool = False,
    only: str | None = None,
) -> LayersDocument:
    """The document of what was measured.

    Args:
        study: the same study, with the samples of whole steps.
        model: its network.
        times: of the cells that were measured, by name.
        whole_steps: names of the cells whose layers have no times of their own.
        inside: whether residual blocks have a row for each of their layers.
        only: the one layer that has rows, and then nothing is said of whole steps.
    """
    found = pieces(model)
    engines = [
        _engine(result, found, times.get(result.cell, []), result.cell in whole_steps, inside)
        for result in study.results
    ]
    return LayersDocument(
        id=study.id,
        created=study.created,
        polybench=study.polybench,
        argv=study.argv,
        study=study.study,
        settings=study.settings,
        host=study.host,
        warnings=[*study.warnings, *(f"{r.cell}: {text}" for r in study.results for text in r.warnings)],
        engines=engines if only is None else [_only(engine, only) for engine in engines],
    )


_OF_STEPS = ("step_seconds", "step_interval95", "residue_seconds", "interval95", "gc_seconds_per_step")


def _only(engine: EngineLayers, layer: str) -> EngineLayers:
    rows = [row for row in engine.rows if row.layer == layer]
    nothing = dict.fromkeys(_OF_STEPS)
    roof = engine.roof and msgspec.structs.replace(engine.roof, share=None)
    return msgspec.structs.replace(engine, rows=rows, roof=roof, **nothing)


def _engine(
    result: Result, found: Sequence[Piece], times: Times, whole_step: bool, inside: bool
) -> EngineLayers:
    engine = EngineLayers(
        **fields_of(result),
        parity=result.parity.status,
        whole_step=whole_step,
        gc_seconds_per_step=result.gc.seconds_per_step,
        samples=result.samples,
        versions=result.versions,
        roof=result.roof,
    )
    if result.samples:
        steps = [[median(one_round) for one_round in process] for process in result.samples.step_seconds]
        engine.step_seconds, engine.step_interval95 = mean_of_rounds(steps)
        if any(times):
            engine.rows = _rows(found, result.workload.batch_size, times, inside)
            engine.residue_seconds, engine.interval95 = mean_of_rounds(_residues(steps, times))
    return engine


def _residues(steps: list[list[float]], times: Times) -> list[list[float]]:
    return [
        [step - sum(timed.seconds for timed in parts) for step, parts in zip(*rounds, strict=False)]
        for rounds in zip(steps, times, strict=False)
    ]


def _rows(found: Sequence[Piece], batch_size: int, times: Times, inside: bool) -> list[LayerRow]:
    """In the order of the network, what belongs to the step last."""
    groups: dict[tuple[str, Part], list[int]] = {}
    for number, timed in enumerate(_one_round(times)):
        groups.setdefault((_layer(found, timed.piece, inside), timed.part), []).append(number)
    layers = list(dict.fromkeys(_layer(found, index, inside) for index in range(len(found))))
    order = sorted(groups, key=lambda key: ([*layers, STEP].index(key[0]), _PARTS.index(key[1])))
    return [_row(*key, groups[key], found, batch_size, times) for key in order]


def _one_round(times: Times) -> list[PartTimed]:
    return next(parts for rounds in times for parts in rounds)


def _layer(found: Sequence[Piece], index: int | None, inside: bool) -> str:
    if index is None:
        return STEP
    return found[index].name if inside else found[index].block


def _row(
    layer: str, part: Part, numbers: list[int], found: Sequence[Piece], batch_size: int, times: Times
) -> LayerRow:
    """The sum of these parts, by their numbers in a round."""
    seconds = [[sum(parts[number].seconds for number in numbers) for parts in rounds] for rounds in times]
    mean, interval = mean_of_rounds(seconds)
    one_round = _one_round(times)
    indices = [index for number in numbers if (index := one_round[number].piece) is not None]
    flop = [count for index in indices if (count := found[index].flop(part, batch_size)) is not None]
    moved = [
        count for index in indices if (count := found[index].compulsory_bytes(part, batch_size)) is not None
    ]
    return LayerRow(
        layer=layer,
        part=part,
        seconds_per_step=mean,
        interval95=interval,
        gc_seconds_per_step=_collecting(numbers, times),
        flop=sum(flop) if flop else None,
        compulsory_bytes=sum(moved) if moved else None,
        seconds=seconds,
    )


def _collecting(numbers: list[int], times: Times) -> float | None:
    known = [[parts[number].gc_seconds for number in numbers] for rounds in times for parts in rounds]
    sums = [sum(seconds) for seconds in known if None not in seconds]  # type: ignore[arg-type]
    return fmean(sums) if sums else None
