"""Speed in relation to another cell: the baseline, or the same engine on the CPU; above 1 is faster."""

from __future__ import annotations

from polybench.core import units
from polybench.core.document.result import Result
from polybench.metrics.base import Metric


def _in_words(result: Result) -> str:
    if result.relative is None:
        return ""
    if result.relative.baseline == result.cell:
        return "1 (baseline)"
    return units.with_interval(result.relative.speedup, result.relative.interval95)


SPEEDUP = Metric(
    name="speedup",
    title="speedup",
    unit="",
    better="higher",
    value=lambda result: result.relative.speedup if result.relative else None,
    in_words=_in_words,
    interval=lambda result: result.relative.interval95 if result.relative else None,
    note="against `--baseline`",
)

DEVICE_SPEEDUP = Metric(
    name="device_speedup",
    title="against its CPU",
    unit="",
    better="higher",
    value=lambda result: result.device_speedup.speedup if result.device_speedup else None,
    show=units.ratio,
    interval=lambda result: result.device_speedup.interval95 if result.device_speedup else None,
    note="CUDA against the same engine's CPU",
    needs="needs `--devices cpu,cuda`",
)
