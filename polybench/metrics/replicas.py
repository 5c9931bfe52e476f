"""Data-parallel training: how many replicas, what they gain against one, what their exchange takes."""

from __future__ import annotations

from polybench.core import units
from polybench.core.document.replicas import Scaling
from polybench.core.document.result import Result
from polybench.metrics.base import Interval, Metric

_NEEDS = "needs `--replicas 1,2`"


def _replicas(result: Result) -> int | None:
    """None in studies that have one of each only."""
    replicas = result.workload.replicas
    return replicas if result.measured and (replicas > 1 or result.scaling is not None) else None


def _scaling(result: Result) -> Scaling | None:
    """Not of the cell that it is in relation to."""
    found = result.scaling
    return None if found is None or found.single_cell == result.cell else found


def _interval(result: Result) -> Interval | None:
    found = _scaling(result)
    return found.interval95 if found else None


def _efficiency_interval(result: Result) -> Interval | None:
    found = _scaling(result)
    if found is None or found.interval95 is None:
        return None
    low, high = found.interval95
    return low / found.devices, high / found.devices


REPLICAS = Metric(
    name="replicas",
    title="replicas",
    unit="",
    better=None,
    value=_replicas,
    show=units.count,
    note="of the network, each on its part of every batch",
    needs=_NEEDS,
)

SCALING = Metric(
    name="scaling",
    title="against 1 replica",
    unit="",
    better="higher",
    value=lambda result: found.speedup if (found := _scaling(result)) else None,
    show=units.ratio,
    interval=_interval,
    note="images/s to those of the same cell with one replica",
    needs=_NEEDS,
)

EFFICIENCY = Metric(
    name="efficiency",
    title="scaling efficiency",
    unit="",
    better="higher",
    value=lambda result: found.efficiency if (found := _scaling(result)) else None,
    show=units.percent,
    interval=_efficiency_interval,
    note="`scaling` over the number of GPUs; on the CPU `scaling`, since replicas share the study's threads",
    needs=_NEEDS,
)

COMMUNICATION = Metric(
    name="communication",
    title="communication",
    unit="",
    better="lower",
    value=lambda result: result.communication.share if result.communication else None,
    show=units.percent,
    note="the share of a step that is saved where gradients are not exchanged",
    needs="needs `--replicas 2`, and an engine that can leave the exchange out",
)

REPLICATION = (REPLICAS, SCALING, EFFICIENCY, COMMUNICATION)
