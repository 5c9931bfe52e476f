"""The document of `polybench allocations`: the allocation sites of each engine.

Bytes and counts are means per training step. Null means "no source", never 0.

Schema history:
    polybench.allocations/1  before the first release
    polybench.allocations/2  fields in standard terms
"""

from __future__ import annotations

import msgspec

from polybench.schema.configuration_status import ConfigurationStatus
from polybench.schema.metadata import Host, RoundInterference, Settings, ToolVersion

SCHEMA = "polybench.allocations/2"


class AllocationSite(msgspec.Struct, frozen=True):
    """An operator, operation or function, and its allocations.

    An allocation is avoidable if a block of the same size was free, because the same step had allocated and
    freed it before.
    """

    location: str
    bytes_per_step: float
    count_per_step: float
    avoidable_allocations_per_step: float | None = None
    avoidable_bytes_per_step: float | None = None


class AllocationProfile(msgspec.Struct, frozen=True):
    """All allocation sites that `source` reports, the most bytes first."""

    source: str
    coverage: str
    sites: list[AllocationSite]


class ConfigurationAllocations(ConfigurationStatus, kw_only=True):
    """A configuration; without `source`, `status`, `reason` and `hint` say why."""

    source: str | None = None
    coverage: str | None = None
    bytes_per_step: float | None = None
    count_per_step: float | None = None
    sites: list[AllocationSite] = []


class AllocationsDocument(msgspec.Struct, kw_only=True):
    """The document. `study` is the profiled study as TOML."""

    schema: str = SCHEMA
    created: str
    polybench: ToolVersion
    argv: list[str]
    study: str
    settings: Settings
    host: Host
    interference: list[RoundInterference] = []
    """An entry per round."""
    warnings: list[str] = []
    configurations: list[ConfigurationAllocations] = []
