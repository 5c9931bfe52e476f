"""Classifies the rows of a comparison between two studies. Pure.

The interval within one study does not cover the changes of a machine from day to day. Some machines have two
levels of speed that no counter shows. Unchanged configurations reveal such a drift: the smallest change of all
other engines is attributed to the machine. Devices drift independently, so only configurations of the same
device are used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean
from typing import NamedTuple

import msgspec

from polybench.schema import units
from polybench.schema.analyses import DiffRow
from polybench.stats.statistics import LogRatioChange, q_values

SIGNIFICANCE_LEVEL = 0.05
"""Expected fraction of false verdicts among all verdicts of a difference."""

_NO_DRIFT = LogRatioChange(0.0, 0.0, 1.0)


class Candidate(NamedTuple):
    """A row without its verdict and its change; the change is None if the row is not comparable."""

    row: DiffRow
    change: LogRatioChange | None = None


def classify(candidates: Sequence[Candidate], tolerance: float, *, all_changed: bool) -> list[DiffRow]:
    """Return the rows with their verdicts.

    Args:
        candidates: all rows of a pair of studies.
        tolerance: relative change of a step time that counts as no difference.
        all_changed: True if a change may affect all engines, so that none of them reveals machine drift.
    """
    changes = [(row, change) for row, change in candidates if change is not None]
    unchanged = [(row, change) for row, change in changes if not all_changed and not set(row.changed) - {"peak"}]
    drifts = {
        (engine, device): _machine_drift(
            [change for row, change in unchanged if row.engine != engine and row.device == device]
        )
        for engine, device in {(row.engine, row.device) for row, _ in changes}
    }
    corrected = {row.configuration: _without_drift(change, drifts[row.engine, row.device]) for row, change in changes}
    rates = dict(zip(corrected, q_values([one.p_value for one in corrected.values()]), strict=True))
    return [
        row
        if change is None
        else _with_verdict(
            row,
            corrected[row.configuration],
            rates[row.configuration],
            drifts[row.engine, row.device],
            tolerance,
        )
        for row, change in candidates
    ]


def _machine_drift(changes: Sequence[LogRatioChange]) -> LogRatioChange | None:
    """Return the smallest change if all are significant and have the same direction; None without changes."""
    if len({one.log > 0 for one in changes}) > 1 or any(one.p_value >= SIGNIFICANCE_LEVEL for one in changes):
        return _NO_DRIFT
    return min(changes, key=lambda one: abs(one.log), default=None)


def _without_drift(change: LogRatioChange, drift: LogRatioChange | None) -> LogRatioChange:
    """Subtract the machine's drift, but not more than the change itself."""
    if drift is None or drift.log * change.log <= 0:
        return change
    corrected = change.subtract(drift)
    return corrected if corrected.log * change.log > 0 else corrected._replace(log=0.0)


def _with_verdict(
    row: DiffRow, corrected: LogRatioChange, rate: float, drift: LogRatioChange | None, tolerance: float
) -> DiffRow:
    differs = rate < SIGNIFICANCE_LEVEL and abs(corrected.log) > math.log1p(tolerance)
    return msgspec.structs.replace(
        row,
        verdict=("faster" if corrected.log > 0 else "slower") if differs else "no difference",
        q_value=rate,
        machine_drift_ratio=None if drift is None else drift.ratio,
        corrected_ratio=corrected.ratio,
    )


def machine_warnings(rows: Sequence[DiffRow]) -> list[str]:
    """Warn for each device if all engines changed in the same way, or if drift cannot be ruled out."""
    by_device: dict[str, list[DiffRow]] = {}
    for row in rows:
        if row.verdict != "not comparable" and row.ratio and row.ci95:
            by_device.setdefault(row.device, []).append(row)
    return [text for device, compared in by_device.items() for text in _device_warnings(device, compared)]


def _device_warnings(device: str, rows: Sequence[DiffRow]) -> list[str]:
    ratios = [row.ratio for row in rows if row.ratio]
    all_significant = all(row.ci95 and not row.ci95[0] <= 1 <= row.ci95[1] for row in rows)
    same_direction = len({ratio > 1 for ratio in ratios}) == 1
    if len({row.engine for row in rows}) > 1 and same_direction and all_significant:
        typical = math.exp(fmean(map(math.log, ratios)))
        word, factor = ("faster", typical) if typical > 1 else ("slower", 1 / typical)
        return [
            f"all configurations on {device} are {word} by a factor of about {units.format_number(factor)}:"
            " the machine or something that all engines share probably changed; measure both side by side to"
            " find out"
        ]
    if any(row.verdict != "no difference" and row.machine_drift_ratio is None for row in rows):
        return [
            f"no other engine on {device} is unchanged between the studies, so a change of the machine cannot"
            " be distinguished from one of the engine; measure both side by side, or add another engine"
        ]
    return []
