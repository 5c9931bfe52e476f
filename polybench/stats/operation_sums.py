"""Sums of layer operations with their intervals. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from polybench.schema.measurements import LayerRow
from polybench.schema.result import Interval
from polybench.stats.statistics import mean_over_rounds


def sum_operations(rows: Sequence[LayerRow]) -> tuple[float, Interval | None]:
    """Return the seconds per step of several operations of a configuration, with the interval of their sum.

    Operations of a round are summed before its mean, because they share the round's state of the machine.
    """
    if len(rows) == 1:
        return rows[0].seconds_per_step, rows[0].ci95
    processes = list(zip(*(row.seconds for row in rows), strict=False))
    sums = [[sum(seconds) for seconds in zip(*rounds, strict=False)] for rounds in processes]
    total = sum(row.seconds_per_step for row in rows)
    return total, mean_over_rounds(sums)[1] if any(sums) else None


def is_backward(row: LayerRow) -> bool:
    """Return True for the gradients of a layer."""
    return row.operation.endswith(" gradient")


def select_pass(rows: Iterable[LayerRow], *, backward: bool) -> list[LayerRow]:
    """Return the operations of one pass over the layers."""
    return [row for row in rows if (is_backward(row) if backward else row.operation == "forward")]
