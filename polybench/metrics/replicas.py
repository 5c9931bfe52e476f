"""Data-parallel training: number of replicas, speed-up over one replica and share of the all-reduce."""

from __future__ import annotations

from polybench.metrics.base import Interval, Metric
from polybench.schema import units
from polybench.schema.result import Result, Scaling

_HINT = "needs `--replicas 1,2`"


def _replicas(result: Result) -> int | None:
    """Return the number of replicas; None if no engine of the study has several."""
    replicas = result.workload.replicas
    return replicas if result.is_measured and (replicas > 1 or result.scaling is not None) else None


def _scaling(result: Result) -> Scaling | None:
    """Return the scaling; None for the baseline of the scaling itself."""
    found = result.scaling
    return None if found is None or found.baseline == result.configuration else found


def _interval(result: Result) -> Interval | None:
    found = _scaling(result)
    return found.ci95 if found else None


def _efficiency_interval(result: Result) -> Interval | None:
    found = _scaling(result)
    if found is None or found.ci95 is None:
        return None
    low, high = found.ci95
    return low / found.devices, high / found.devices


DATA_PARALLEL = Metric(
    name="data_parallel",
    title="replicas",
    unit="",
    better=None,
    value=_replicas,
    format_value=units.format_count,
    description="number of replicas; each trains the network on its share of every batch",
    unavailable_hint=_HINT,
)

PARALLEL_SPEEDUP = Metric(
    name="parallel_speedup",
    title="vs 1 replica",
    unit="",
    better="higher",
    value=lambda result: found.speedup if (found := _scaling(result)) else None,
    format_value=units.format_ratio,
    interval=_interval,
    description="images/s divided by those of the same configuration with one replica",
    unavailable_hint=_HINT,
)

PARALLEL_EFFICIENCY = Metric(
    name="parallel_efficiency",
    title="parallel efficiency",
    unit="",
    better="higher",
    value=lambda result: found.efficiency if (found := _scaling(result)) else None,
    format_value=units.format_percent,
    interval=_efficiency_interval,
    description="`parallel_speedup` divided by the number of GPUs; equal to `parallel_speedup` on the CPU, where"
    " replicas share the study's threads",
    unavailable_hint=_HINT,
)

ALLREDUCE_SHARE = Metric(
    name="allreduce_share",
    title="all-reduce share",
    unit="",
    better="lower",
    value=lambda result: result.communication.fraction if result.communication else None,
    format_value=units.format_percent,
    description="share of a step's time that is saved without the all-reduce of gradients",
    unavailable_hint="needs `--replicas 2` and an engine that can skip the all-reduce",
)

REPLICAS_GROUP = (DATA_PARALLEL, PARALLEL_SPEEDUP, PARALLEL_EFFICIENCY, ALLREDUCE_SHARE)
