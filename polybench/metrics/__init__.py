"""The metrics. ADD A METRIC: one file that defines a `metrics.base.Metric`, and its row here."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.core.names import pick
from polybench.metrics import (
    allocations,
    cost,
    disturbance,
    means,
    memory,
    pipeline,
    replicas,
    startup,
    utilization,
)
from polybench.metrics.accuracy import ACCURACY, TIME_TO_ACCURACY
from polybench.metrics.base import Metric
from polybench.metrics.parity import PARITY
from polybench.metrics.roof import ROOF
from polybench.metrics.speedup import DEVICE_SPEEDUP, SPEEDUP
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
        DEVICE_SPEEDUP,
        *replicas.REPLICATION,
        *means.MEANS,
        ACCURACY,
        TIME_TO_ACCURACY,
        allocations.ALLOCATED,
        allocations.ALLOCATIONS,
        allocations.DEVICE_ALLOCATED,
        allocations.DEVICE_ALLOCATIONS,
        *allocations.NATIVE,
        allocations.GC_TIME,
        allocations.FULL_SWEEPS,
        startup.COLD_START,
        *startup.LEDGER,
        startup.BREAK_EVEN,
        memory.PEAK_MEMORY,
        *memory.MEMORY,
        utilization.CPU,
        utilization.GPU,
        utilization.POWER,
        utilization.TEMPERATURE,
        utilization.THROTTLE,
        utilization.ENERGY,
        *disturbance.DISTURBANCE,
        cost.COST,
        cost.RELATIVE_COST,
        ROOF,
        PARITY,
    )
}
"""In the order of the columns."""

DEFAULT_COLUMNS = (
    "step_time",
    "speedup",
    "parity",
    "replicas",
    "efficiency",
    "communication",
    "waiting_time",
    "accuracy",
    "time_to_accuracy",
    "allocated",
    "peak_memory",
    "cold_start",
    "device_speedup",
    "relative_cost",
    "cost",
    "energy",
    "roof",
    "throughput",
)
"""By importance: a table shows those of them that have a value and fit (export.fitting)."""

GROUPS: dict[str, tuple[str, ...]] = {
    "times": (
        "step_time",
        "throughput",
        "steps_per_second",
        "epoch_time",
        "speedup",
        "device_speedup",
        "roof",
    ),
    "replication": tuple(metric.name for metric in replicas.REPLICATION),
    "means": tuple(metric.name for metric in means.MEANS),
    "training": ("accuracy", "time_to_accuracy"),
    "startup": ("cold_start", *(metric.name for metric in startup.LEDGER), "break_even"),
    "allocation": (
        "allocated",
        "allocations",
        "device_allocated",
        "device_allocations",
        *(metric.name for metric in allocations.NATIVE),
        "gc_time",
        "full_sweeps",
    ),
    "pipeline": ("throughput", *(metric.name for metric in pipeline.PIPELINE)),
    "memory": ("peak_memory", *(metric.name for metric in memory.MEMORY)),
    "disturbance": tuple(metric.name for metric in disturbance.DISTURBANCE),
    "utilization": ("cpu", "gpu", "power", "temperature", "throttle", "energy"),
    "all": tuple(METRICS),
}
"""What --columns takes for several at once."""


def metrics_of(names: Sequence[str]) -> list[Metric]:
    """The metrics with these names, a group's name for all of its own, each once.

    Raises:
        BadInput: an unknown name, with the nearest valid one.
    """
    known = METRICS | GROUPS
    for name in names:
        pick(name, known, "column")
    expanded = (member for name in names for member in GROUPS.get(name, (name,)))
    return [METRICS[name] for name in dict.fromkeys(expanded)]


def in_order(metrics: Sequence[Metric]) -> list[Metric]:
    """The same metrics in the order of the table METRICS."""
    return [metric for metric in METRICS.values() if metric in metrics]
