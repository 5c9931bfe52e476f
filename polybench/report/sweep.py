"""The studies of a sweep -> curves and costs: speed-up and efficiency, the knee, the best point. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from polybench.core.document.circumstances import NO_BACKGROUND, Background
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.document.sweep import (
    SWEEP_ID,
    Configuration,
    Curve,
    SweepDocument,
    SweepPoint,
    SweptCell,
)
from polybench.report.comparisons import relative_across_studies
from polybench.report.pools import pool_matrices
from polybench.report.replicas import devices
from polybench.report.warnings import of_points

KNEE = 0.9
"""Of the best throughput: who has that has most of what there is to have."""

Point = tuple[dict[str, int], StudyDocument]


def summarize(
    axes: Mapping[str, Sequence[int]],
    points: Sequence[Point],
    argv: Sequence[str],
    usable_threads: int,
    background: Background = NO_BACKGROUND,
) -> SweepDocument:
    """Everything a sweep says.

    Args:
        axes: what was varied.
        points: values and finished study of each, in the order of the axes; at least one.
        argv: the command line, for the record.
        usable_threads: of this machine, to tell where there were more.
        background: what the study file says beside the study.
    """
    first: dict[str, Result] = {}
    for _, document in points:
        for result in document.results:
            if result.ranked:
                first.setdefault(result.cell, result)
    _, anyone = points[0]
    base = _base(points)
    made = [
        SweepPoint(
            values,
            document.id,
            oversubscribed=document.settings.threads > usable_threads,
            cells=[
                _with_cost(_cell(result, first.get(result.cell), "threads" in axes), result, document, base)
                for result in document.results
            ],
            workload=document.results[0].workload if document.results else None,
        )
        for values, document in points
    ]
    models = dict.fromkeys(document.settings.model for _, document in points)
    return SweepDocument(
        id=f"{SWEEP_ID}{min(document.id for _, document in points)}",
        created=min(document.created for _, document in points),
        polybench=anyone.polybench,
        argv=list(argv),
        model=",".join(models),
        unit=anyone.settings.unit,
        host=anyone.host,
        axes={axis: list(values) for axis, values in axes.items()},
        points=made,
        curves=_curves(made),
        base=Configuration(base.result.cell, base.values) if base else None,
        pools=pool_matrices(points),
        warnings=of_points(points),
        title=background.title,
        published=background.published,
    )


def _cell(result: Result, first: Result | None, by_threads: bool) -> SweptCell:
    if not result.ranked or first is None:
        reason = result.reason or result.parity.reason
        return SweptCell(result.cell, result.status, reason)
    found = relative_across_studies(first, result)
    threads = result.workload.threads / first.workload.threads
    return SweptCell(
        result.cell,
        result.status,
        seconds_per_step=result.step_seconds.median if result.step_seconds else None,
        samples_per_second=result.samples_per_second,
        speedup=found.value,
        interval95=found.interval95 if result is not first else None,
        efficiency=found.value / threads if by_threads else None,
    )


class _Base(NamedTuple):
    values: dict[str, int]
    result: Result


def _base(points: Sequence[Point]) -> _Base | None:
    """The baseline's result at the first point that has one.

    Where the cell that was asked for failed, a point has another baseline: that of most points is taken.
    """
    chosen = Counter(filter(None, (document.settings.baseline for _, document in points)))
    wanted = next((cell for cell, _ in chosen.most_common(1)), None)
    for values, document in points:
        for result in document.results:
            if result.cell == wanted and result.ranked and result.epoch_seconds:
                return _Base(values, result)
    return None


def _with_cost(swept: SweptCell, result: Result, document: StudyDocument, base: _Base | None) -> SweptCell:
    """Time and price of an epoch, as a study has them, but relative to a cell of another study."""
    if swept.speedup is None or result.epoch_seconds is None:
        return swept
    price = document.settings.prices.get(result.device)
    cost, base_cost = result.cost, base.result.cost if base else None
    return msgspec.structs.replace(
        swept,
        epoch_seconds=result.epoch_seconds,
        relative_time=_ratio(result.epoch_seconds, base.result.epoch_seconds if base else None),
        dollars_per_hour=None if price is None else price * devices(result),
        dollars_per_epoch=cost.dollars_per_epoch if cost else None,
        relative_cost=_ratio(
            cost.dollars_per_epoch if cost else None, base_cost.dollars_per_epoch if base_cost else None
        ),
    )


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value is not None and base else None


def _curves(points: Sequence[SweepPoint]) -> list[Curve]:
    by_cell: dict[str, list[tuple[dict[str, int], float]]] = {}
    for point in points:
        for cell in point.cells:
            if cell.samples_per_second is not None:
                by_cell.setdefault(cell.cell, []).append((point.values, cell.samples_per_second))
    return [_curve(cell, reached) for cell, reached in by_cell.items()]


def _curve(cell: str, reached: Sequence[tuple[dict[str, int], float]]) -> Curve:
    best, most = max(reached, key=lambda one: one[1])
    knee = None
    if len(best) == 1:
        knee = min(value for values, speed in reached if speed >= KNEE * most for value in values.values())
    return Curve(cell, best, most, knee)
