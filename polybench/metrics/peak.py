"""Throughput of a training step as a fraction of the machine's measured peak."""

from __future__ import annotations

from polybench.metrics.base import Metric
from polybench.schema import units

PCT_OF_PEAK = Metric(
    name="pct_of_peak",
    title="% of peak",
    unit="",
    better="higher",
    value=lambda result: result.peak.fraction if result.peak else None,
    format_value=units.format_percent,
    unavailable_hint="needs `polybench peak` before the study, with the same threads, malloc policy, precision"
    " and versions",
    description="FLOP/s of a step as a fraction of the fastest matrix product that `polybench peak` measured on"
    " this machine; FLOPs are those of direct convolutions, so Winograd convolutions can exceed 100 %",
)
