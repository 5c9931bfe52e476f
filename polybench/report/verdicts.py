"""Rows that may be compared between two studies -> their verdicts. Pure.

An interval within one study says nothing of what a machine does from one day to the next: some have two
states of speed that no counter shows. What can tell are the cells in which nothing changed: as far as all
other engines moved, too, it is the machine. A machine's devices have states of their own, so only cells of
one device tell of each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import msgspec

from polybench.core import units
from polybench.core.document.diff import DiffRow
from polybench.core.shifts import Shift, false_discovery_rates

LEVEL = 0.05
"""Of the verdicts that are given, so many may be false at most, on average."""

_STILL = Shift(0.0, 0.0, 1.0)


class Compared(NamedTuple):
    """A row without its verdict, and by how much it moved; None where it is not comparable."""

    row: DiffRow
    own: Shift | None = None


def judged(compared: Sequence[Compared], tolerance: float, *, all_changed: bool) -> list[DiffRow]:
    """The rows with their verdicts.

    Args:
        compared: all rows of a pair of studies.
        tolerance: the fraction by which a step may change without a difference.
        all_changed: whether something changed that all engines may feel; then none tells of the machine.
    """
    shifts = [(row, own) for row, own in compared if own is not None]
    same = [(row, own) for row, own in shifts if not all_changed and not set(row.changed) - {"roof"}]
    machines = {
        (engine, device): _moved_by_all(
            [own for other, own in same if other.engine != engine and other.device == device]
        )
        for engine, device in {(row.engine, row.device) for row, _ in shifts}
    }
    beyond = {row.cell: _beyond(own, machines[row.engine, row.device]) for row, own in shifts}
    rates = dict(zip(beyond, false_discovery_rates([one.p for one in beyond.values()]), strict=True))
    return [
        row
        if own is None
        else _with_verdict(
            row, beyond[row.cell], rates[row.cell], machines[row.engine, row.device], tolerance
        )
        for row, own in compared
    ]


def _moved_by_all(others: Sequence[Shift]) -> Shift | None:
    """The least of them, where each certainly moved, and all the same way; None where there is no other."""
    if len({one.log > 0 for one in others}) > 1 or any(one.p >= LEVEL for one in others):
        return _STILL
    return min(others, key=lambda one: abs(one.log), default=None)


def _beyond(own: Shift, machine: Shift | None) -> Shift:
    """What is left of a shift once the machine had its part."""
    if machine is None or machine.log * own.log <= 0:
        return own
    left = own.less(machine)
    return left if left.log * own.log > 0 else left._replace(log=0.0)


def _with_verdict(
    row: DiffRow, beyond: Shift, rate: float, machine: Shift | None, tolerance: float
) -> DiffRow:
    differs = rate < LEVEL and abs(beyond.log) > math.log1p(tolerance)
    return msgspec.structs.replace(
        row,
        verdict=("faster" if beyond.log > 0 else "slower") if differs else "no difference",
        false_discovery_rate=rate,
        machine=None if machine is None else machine.ratio,
        beyond=beyond.ratio,
    )


def of_the_machine(rows: Sequence[DiffRow]) -> list[str]:
    """Of each device whether all engines moved as one; or why nobody can know."""
    by_device: dict[str, list[DiffRow]] = {}
    for row in rows:
        if row.verdict != "not comparable" and row.ratio and row.interval95:
            by_device.setdefault(row.device, []).append(row)
    return [text for device, given in by_device.items() for text in _of_the_device(device, given)]


def _of_the_device(device: str, given: Sequence[DiffRow]) -> list[str]:
    ratios = [row.ratio for row in given if row.ratio]
    apart = all(row.interval95 and not row.interval95[0] <= 1 <= row.interval95[1] for row in given)
    one_way = len({ratio > 1 for ratio in ratios}) == 1
    if len({row.engine for row in given}) > 1 and one_way and apart:
        typical = math.exp(fmean(map(math.log, ratios)))
        word, factor = ("faster", typical) if typical > 1 else ("slower", 1 / typical)
        return [
            f"every row on {device} is {word}, by a factor of about {units.number(factor)}: the machine, or"
            " what all share, rather than an engine; measure both side by side to tell"
        ]
    if any(row.verdict != "no difference" and row.machine is None for row in given):
        return [
            f"on {device} no other engine is the same in both studies, so a change of the machine cannot be"
            " told from one of the engine; measure both side by side, or with another engine beside them"
        ]
    return []
