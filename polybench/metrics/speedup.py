"""Speed relative to the baseline, or to the same engine on the CPU; above 1 is faster."""

from __future__ import annotations

from polybench.metrics.base import Metric
from polybench.schema import units
from polybench.schema.result import Result


def _format(result: Result) -> str:
    if result.vs_baseline is None:
        return ""
    if result.vs_baseline.baseline == result.configuration:
        return "1 (baseline)"
    return units.format_with_ci(result.vs_baseline.speedup, result.vs_baseline.ci95)


SPEEDUP = Metric(
    name="speedup",
    title="speedup",
    unit="",
    better="higher",
    value=lambda result: result.vs_baseline.speedup if result.vs_baseline else None,
    format_result=_format,
    interval=lambda result: result.vs_baseline.ci95 if result.vs_baseline else None,
    description="relative to `--baseline`",
)

GPU_SPEEDUP = Metric(
    name="gpu_speedup",
    title="vs its CPU",
    unit="",
    better="higher",
    value=lambda result: result.gpu_speedup.speedup if result.gpu_speedup else None,
    format_value=units.format_ratio,
    interval=lambda result: result.gpu_speedup.ci95 if result.gpu_speedup else None,
    description="speed on CUDA divided by the same engine's on the CPU",
    unavailable_hint="needs `--devices cpu,cuda`",
)
