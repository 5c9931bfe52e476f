"""Fits the fixed overhead of a training step to studies of several batch sizes. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from polybench.results.interference import unaffected_step_times
from polybench.results.warnings import sweep_warnings
from polybench.schema.measurements import (
    OVERHEAD_ID,
    ConfigurationOverhead,
    OverheadDocument,
    OverheadIntervals,
    OverheadPoint,
)
from polybench.schema.result import Result, status_fields
from polybench.schema.study import StudyDocument
from polybench.stats.overhead_fit import fit_overhead
from polybench.stats.statistics import process_log_medians


def build_overhead_document(
    documents: Mapping[int, StudyDocument], argv: Sequence[str], batch_sizes: Sequence[int] = ()
) -> OverheadDocument:
    """Fit each configuration that was measured at two or more batch sizes.

    Args:
        documents: finished studies by batch size; at least one.
        argv: the command line, stored in the document.
        batch_sizes: requested batch sizes; by default those of `documents`.
    """
    first = next(iter(documents.values()))
    return OverheadDocument(
        id=f"{OVERHEAD_ID}{min(document.id for document in documents.values())}",
        created=min(document.created for document in documents.values()),
        polybench=first.polybench,
        argv=list(argv),
        model=first.settings.model,
        input_kind=first.settings.input_kind,
        threads=first.settings.threads,
        host=first.host,
        batch_sizes=sorted(batch_sizes or documents),
        studies=[documents[size].id for size in sorted(documents)],
        configurations=[_configuration_overhead(result.configuration, documents) for result in first.results],
        warnings=sweep_warnings([({"batch_size": size}, document) for size, document in documents.items()]),
    )


def _configuration_overhead(configuration: str, documents: Mapping[int, StudyDocument]) -> ConfigurationOverhead:
    results = [document.result(configuration) for document in documents.values()]
    measured = {result.workload.batch_size: result for result in results if result.is_ranked}
    failing = (one for one in results if not one.is_ranked or one.status == "interrupted")
    reported = next(failing, results[0])
    row = ConfigurationOverhead(
        **status_fields(reported),
        points=[_point(size, result) for size, result in sorted(measured.items())],
    )
    row.reason = row.reason or (None if reported.is_ranked else reported.parity.reason)
    process_times = [_process_step_seconds(result) for result in measured.values()]
    processes = list(zip(*process_times, strict=False))  # keeps the processes that all results have
    if len(measured) < 2 or not processes:
        return row
    fit = fit_overhead(list(measured), processes)
    row.overhead_seconds, row.seconds_per_item = fit.overhead, fit.per_item
    row.ci95 = OverheadIntervals(fit.overhead_ci95, fit.per_item_ci95)
    row.batch_size_at_50pct_overhead, row.max_relative_residual = (
        fit.batch_size_at_50pct_overhead,
        fit.max_relative_residual,
    )
    calls = [
        result.python_call_overhead_seconds
        for result in measured.values()
        if result.python_call_overhead_seconds is not None
    ]
    row.python_call_overhead_seconds = median(calls) if calls else None
    return row


def _process_step_seconds(result: Result) -> list[float]:
    """Return the typical step time of each process."""
    return [math.exp(level) for level in process_log_medians(unaffected_step_times(result))]


def _point(size: int, result: Result) -> OverheadPoint:
    assert result.step_time is not None
    return OverheadPoint(size, result.step_time.median, result.step_time.ci95)
