"""The metrics. ADD A METRIC: a file that defines a `metrics.base.Metric`, and its row here."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.errors import lookup_or_suggest
from polybench.metrics import (
    allocations,
    cost,
    interference,
    mean_times,
    memory,
    pipeline,
    replicas,
    startup,
    utilization,
)
from polybench.metrics.accuracy import ACCURACY, TIME_TO_ACCURACY
from polybench.metrics.base import Metric
from polybench.metrics.parity import PARITY
from polybench.metrics.peak import PCT_OF_PEAK
from polybench.metrics.speedup import GPU_SPEEDUP, SPEEDUP
from polybench.metrics.step_time import STEP_TIME
from polybench.metrics.throughput import EPOCH_TIME, STEPS_PER_SECOND, THROUGHPUT

METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        STEP_TIME,
        THROUGHPUT,
        STEPS_PER_SECOND,
        EPOCH_TIME,
        *pipeline.PIPELINE,
        SPEEDUP,
        GPU_SPEEDUP,
        *replicas.REPLICAS_GROUP,
        *mean_times.MEAN_TIMES,
        ACCURACY,
        TIME_TO_ACCURACY,
        allocations.ALLOC_BYTES,
        allocations.ALLOC_COUNT,
        allocations.DEVICE_ALLOC_BYTES,
        allocations.DEVICE_ALLOC_COUNT,
        *allocations.NATIVE,
        allocations.GC_TIME,
        allocations.FULL_GCS,
        startup.COLD_START,
        *startup.STARTUP_PHASES,
        startup.BREAK_EVEN,
        memory.PEAK_MEMORY,
        *memory.MEMORY,
        utilization.CPU_UTILIZATION,
        utilization.GPU_UTILIZATION,
        utilization.POWER,
        utilization.TEMPERATURE,
        utilization.THROTTLE_REASONS,
        utilization.ENERGY,
        *interference.INTERFERENCE,
        cost.COST_PER_EPOCH,
        cost.RELATIVE_COST,
        PCT_OF_PEAK,
        PARITY,
    )
}
"""Every metric by name, in the order of the columns."""

DEFAULT_COLUMNS = (
    "step_time",
    "speedup",
    "parity",
    "data_parallel",
    "parallel_efficiency",
    "allreduce_share",
    "data_wait_time",
    "accuracy",
    "time_to_accuracy",
    "alloc_bytes_per_step",
    "peak_memory",
    "cold_start",
    "gpu_speedup",
    "relative_cost",
    "cost_per_epoch",
    "energy",
    "pct_of_peak",
    "throughput",
)
"""Columns in order of importance: a table shows those that have a value and fit (render.auto_columns)."""

GROUPS: dict[str, tuple[str, ...]] = {
    "speed": (
        "step_time",
        "throughput",
        "steps_per_second",
        "epoch_time",
        "speedup",
        "gpu_speedup",
        "pct_of_peak",
    ),
    "replicas": tuple(metric.name for metric in replicas.REPLICAS_GROUP),
    "mean_times": tuple(metric.name for metric in mean_times.MEAN_TIMES),
    "training": ("accuracy", "time_to_accuracy"),
    "startup": ("cold_start", *(metric.name for metric in startup.STARTUP_PHASES), "break_even_steps"),
    "allocation": (
        "alloc_bytes_per_step",
        "allocs_per_step",
        "device_alloc_bytes_per_step",
        "device_allocs_per_step",
        *(metric.name for metric in allocations.NATIVE),
        "gc_time",
        "full_gcs",
    ),
    "pipeline": ("throughput", *(metric.name for metric in pipeline.PIPELINE)),
    "memory": ("peak_memory", *(metric.name for metric in memory.MEMORY)),
    "interference": tuple(metric.name for metric in interference.INTERFERENCE),
    "utilization": (
        "cpu_utilization",
        "gpu_utilization",
        "power",
        "temperature",
        "throttle_reasons",
        "energy",
    ),
    "all": tuple(METRICS),
}
"""Names that `--columns` accepts for several metrics at once."""


def select_metrics(names: Sequence[str]) -> list[Metric]:
    """Return the metrics with these names, each once; the name of a group selects all of its metrics.

    Raises:
        BadInput: a name is unknown; the message suggests the nearest valid one.
    """
    known = METRICS | GROUPS
    for name in names:
        lookup_or_suggest(name, known, "column")
    expanded = (member for name in names for member in GROUPS.get(name, (name,)))
    return [METRICS[name] for name in dict.fromkeys(expanded)]


def in_table_order(metrics: Sequence[Metric]) -> list[Metric]:
    """Sort metrics into the order of METRICS."""
    return [metric for metric in METRICS.values() if metric in metrics]
