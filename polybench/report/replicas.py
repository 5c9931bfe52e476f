"""What the replicas of a cell gain against one, and what their exchange of gradients takes. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from polybench.core.document.replicas import Communication, Scaling
from polybench.core.document.result import Result
from polybench.core.document.times import Relative
from polybench.wire.replica_messages import ExchangeTimed

SOURCE = "whole steps less the same steps without the exchange of gradients, in turns"


def communication(timed: ExchangeTimed | None) -> Communication | None:
    """None where it was not timed, or cannot be left out."""
    if timed is None or timed.seconds is None:
        return None
    with_exchange, without = timed.seconds
    saved = max(0.0, with_exchange - without)
    return Communication(saved, saved / with_exchange, SOURCE)


def devices(result: Result) -> int:
    """How many times the devices of one replica a cell has: on the CPU all share the same threads."""
    return 1 if result.device == "cpu" else result.workload.replicas


def scaling(
    result: Result, results: Sequence[Result], relative: Callable[[Result, Result], Relative | None]
) -> Scaling | None:
    """Of a ranked cell, where the same study has it with one replica and with more.

    Args:
        result: the cell.
        results: every cell of the study.
        relative: speed of the second in relation to the first.
    """
    alike = [
        other for other in results if other.ranked and _without_replicas(other) == _without_replicas(result)
    ]
    single = next((other for other in alike if other.workload.replicas == 1), None)
    if not result.ranked or single is None or all(other.workload.replicas == 1 for other in alike):
        return None
    found = relative(single, result)
    if found is None:
        return None
    times = devices(result)
    return Scaling(
        single.cell,
        found.speedup,
        found.interval95,
        times,
        found.speedup / times,
        found.scope,
        found.no_verdict,
    )


def _without_replicas(result: Result) -> tuple[object, ...]:
    workload = msgspec.structs.replace(result.workload, replicas=1)
    return result.engine_name, result.device, workload
