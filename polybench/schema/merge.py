"""The document of `polybench merge`: one workload on several machines.

Schema history:
    polybench.merge/1  before the first release
    polybench.merge/2  fields in standard terms
"""

from __future__ import annotations

import msgspec

from polybench.schema.configuration_status import ConfigurationStatus
from polybench.schema.metadata import Settings


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """A study on one machine; `name` is its label or host name, numbered if it appears more than once."""

    name: str
    study: str
    created: str
    cpu: str
    cores: int
    gpus: list[str]
    threads: int
    prices: dict[str, float]
    """Dollars per hour, by device."""


class MachineResult(ConfigurationStatus, kw_only=True):
    """A configuration on one machine.

    `speedup` is the speed relative to the baseline, with its interval; above 1 is faster. Cost is time x
    price. Values are null if they were not measured, if the row is not ranked, or without a price.
    """

    machine: str
    parity: str
    step_seconds: float | None = None
    ci95: tuple[float, float] | None = None
    items_per_second: float | None = None
    epoch_seconds: float | None = None
    speedup: float | None = None
    speedup_ci95: tuple[float, float] | None = None
    inconclusive_reason: str | None = None
    dollars_per_epoch: float | None = None
    relative_cost: float | None = None


class MergeDocument(msgspec.Struct, kw_only=True):
    """Studies of one workload in one table, grouped by machine."""

    schema: str = "polybench.merge/2"
    settings: Settings
    """Settings of the first study; all have the same workload."""
    baseline: str | None
    """`MACHINE:CONFIGURATION`."""
    machines: list[Machine]
    results: list[MachineResult]
    """In the order of the machines."""
    failed_machines: dict[str, str] = {}
    """Machines without a result, with the reason."""
