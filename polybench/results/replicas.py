"""Computes the parallel scaling of data-parallel configurations and the cost of their all-reduce. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from polybench.protocol.allreduce_messages import AllReduceTimed
from polybench.schema.result import BaselineComparison, Communication, Result, Scaling

SOURCE = "whole steps minus steps without the all-reduce, timed alternately"


def allreduce_share(timed: AllReduceTimed | None) -> Communication | None:
    """Return the cost of the all-reduce; None if it was not timed or the engine cannot skip it."""
    if timed is None or timed.seconds_per_step is None:
        return None
    with_allreduce, without = timed.seconds_per_step
    seconds = max(0.0, with_allreduce - without)
    return Communication(seconds, seconds / with_allreduce, SOURCE)


def device_count(result: Result) -> int:
    """Return the number of devices; 1 on the CPU, where all replicas share the same threads."""
    return 1 if result.device == "cpu" else result.workload.replicas


def parallel_scaling(
    result: Result, results: Sequence[Result], compare: Callable[[Result, Result], BaselineComparison | None]
) -> Scaling | None:
    """Return the scaling of a ranked result if the study measured it with one replica and with several.

    Args:
        result: the result.
        results: all results of the study.
        compare: returns the speed-up of its second argument over the first.
    """
    same_otherwise = [
        other for other in results if other.is_ranked and _without_replicas(other) == _without_replicas(result)
    ]
    single = next((other for other in same_otherwise if other.workload.replicas == 1), None)
    if not result.is_ranked or single is None or all(one.workload.replicas == 1 for one in same_otherwise):
        return None
    found = compare(single, result)
    if found is None:
        return None
    count = device_count(result)
    return Scaling(
        single.configuration,
        found.speedup,
        found.ci95,
        count,
        found.speedup / count,
        found.scope,
        found.inconclusive_reason,
    )


def _without_replicas(result: Result) -> tuple[object, ...]:
    workload = msgspec.structs.replace(result.workload, replicas=1)
    return result.engine_name, result.device, workload
