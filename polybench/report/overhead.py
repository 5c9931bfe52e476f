"""The studies of a sweep over batch sizes -> the fixed cost of each cell's step. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from polybench.core.document.overhead import (
    OVERHEAD_ID,
    EngineOverhead,
    OverheadDocument,
    OverheadIntervals,
    OverheadPoint,
)
from polybench.core.document.result import Result
from polybench.core.document.row import fields_of
from polybench.core.document.study import StudyDocument
from polybench.core.fixed_cost import fixed_cost
from polybench.core.statistics import process_levels
from polybench.report.disturbance import quiet_steps
from polybench.report.warnings import of_points


def summarize(
    documents: Mapping[int, StudyDocument], argv: Sequence[str], batch_sizes: Sequence[int] = ()
) -> OverheadDocument:
    """Fit each cell that was measured at two batch sizes at least.

    Args:
        documents: finished studies by their batch size; at least one.
        argv: the command line, for the record.
        batch_sizes: that were asked for, by default those that there are.
    """
    anyone = next(iter(documents.values()))
    return OverheadDocument(
        id=f"{OVERHEAD_ID}{min(document.id for document in documents.values())}",
        created=min(document.created for document in documents.values()),
        polybench=anyone.polybench,
        argv=list(argv),
        model=anyone.settings.model,
        unit=anyone.settings.unit,
        threads=anyone.settings.threads,
        host=anyone.host,
        batch_sizes=sorted(batch_sizes or documents),
        studies=[documents[size].id for size in sorted(documents)],
        engines=[_engine(result.cell, documents) for result in anyone.results],
        warnings=of_points([({"batch_size": size}, document) for size, document in documents.items()]),
    )


def _engine(cell: str, documents: Mapping[int, StudyDocument]) -> EngineOverhead:
    everywhere = [document.result(cell) for document in documents.values()]
    measured = {result.workload.batch_size: result for result in everywhere if result.ranked}
    failing = (one for one in everywhere if not one.ranked or one.status == "interrupted")
    worst = next(failing, everywhere[0])
    row = EngineOverhead(
        **fields_of(worst), points=[_point(size, result) for size, result in sorted(measured.items())]
    )
    row.reason = row.reason or (None if worst.ranked else worst.parity.reason)
    levels = [_levels(result) for result in measured.values()]
    processes = list(zip(*levels, strict=False))  # a process that one of them lacks is left out
    if len(measured) < 2 or not processes:
        return row
    found = fixed_cost(list(measured), processes)
    row.fixed_seconds, row.seconds_per_sample = found.fixed, found.per_sample
    row.intervals = OverheadIntervals(found.fixed95, found.per_sample95)
    row.half_batch, row.worst = found.half_batch, found.worst
    calls = [result.call_seconds for result in measured.values() if result.call_seconds is not None]
    row.call_seconds = median(calls) if calls else None
    return row


def _levels(result: Result) -> list[float]:
    """Seconds of a typical step of each process."""
    return [math.exp(level) for level in process_levels(quiet_steps(result))]


def _point(size: int, result: Result) -> OverheadPoint:
    seconds = result.step_seconds
    assert seconds is not None
    return OverheadPoint(size, seconds.median, seconds.interval95)
