"""The metrics. ADD A METRIC: one file that defines a `metrics.base.Metric`, and its row here."""

from __future__ import annotations

from polybench.metrics.base import Metric
from polybench.metrics.cold_start import COLD_START
from polybench.metrics.epoch_time import EPOCH_TIME
from polybench.metrics.parity import PARITY
from polybench.metrics.peak_memory import PEAK_MEMORY
from polybench.metrics.speedup import SPEEDUP
from polybench.metrics.step_time import STEP_TIME
from polybench.metrics.throughput import THROUGHPUT

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (STEP_TIME, THROUGHPUT, EPOCH_TIME, SPEEDUP, COLD_START, PEAK_MEMORY, PARITY)
}
"""In the order of the columns."""

DEFAULT_COLUMNS = ("step_time", "throughput", "speedup", "cold_start", "peak_memory", "parity")
"""Without the epoch time, which the throughput implies: with these a row fits a terminal of 100 columns."""
