"""What `polybench merge` says: one workload on several machines.

Schema history:
    polybench.merge/1  first version
"""

from __future__ import annotations

import msgspec

from polybench.core.document.circumstances import Settings
from polybench.core.document.row import Row


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """One study on one machine; `name` is the study file's, or the host's, numbered where it comes again."""

    name: str
    study: str
    created: str
    cpu: str
    cores: int
    gpus: list[str]
    threads: int
    prices: dict[str, float]
    """Dollars an hour, by device."""


class MergedRow(Row, kw_only=True):
    """One cell on one machine.

    `speedup` is the speed in relation to the baseline's, above 1 is faster, with its interval at the 95 %
    level; cost is time x price. Null where nothing was measured, or it is not ranked, or has no price.
    """

    machine: str
    parity: str
    seconds_per_step: float | None = None
    interval95: tuple[float, float] | None = None
    samples_per_second: float | None = None
    epoch_seconds: float | None = None
    speedup: float | None = None
    speedup95: tuple[float, float] | None = None
    no_verdict: str | None = None
    dollars_per_epoch: float | None = None
    relative_cost: float | None = None


class MergeDocument(msgspec.Struct, kw_only=True):
    """Studies of one workload in one table, grouped by machine."""

    schema: str = "polybench.merge/1"
    settings: Settings
    """Of the first study; the workload is that of all."""
    baseline: str | None
    """`MACHINE:CELL`."""
    machines: list[Machine]
    rows: list[MergedRow]
    """In the order of the machines."""
    absent: dict[str, str] = {}
    """Machines of which nothing came, and why."""
