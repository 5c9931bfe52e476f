"""Who allocates, place by place: what `polybench allocations` prints as JSON.

Bytes and counts are means of a training step; null is "no source tells", never 0.

Schema history:
    polybench.allocations/1  first version
"""

from __future__ import annotations

import msgspec

from polybench.core.document.circumstances import Host, Settings, Tool
from polybench.core.document.row import Row

SCHEMA = "polybench.allocations/1"


class Place(msgspec.Struct, frozen=True):
    """An operator, operation or function, and what it allocates.

    `reusable_per_step`: allocations for which a block of the same size was free, because the same step had
    allocated and freed it before. A step could do without these, and `reusable_bytes_per_step`.
    """

    place: str
    bytes_per_step: float
    calls_per_step: float
    reusable_per_step: float | None = None
    reusable_bytes_per_step: float | None = None


class Places(msgspec.Struct, frozen=True):
    """All places that `source` tells of, by bytes, most first."""

    source: str
    covers: str
    places: list[Place]


class EnginePlaces(Row, kw_only=True):
    """One cell; without `source`, `status`, `reason` and `remedy` say why."""

    source: str | None = None
    covers: str | None = None
    bytes_per_step: float | None = None
    calls_per_step: float | None = None
    places: list[Place] = []


class AllocationsDocument(msgspec.Struct, kw_only=True):
    """The whole record. `study` is what was looked at, as TOML."""

    schema: str = SCHEMA
    created: str
    polybench: Tool
    argv: list[str]
    study: str
    settings: Settings
    host: Host
    warnings: list[str] = []
    engines: list[EnginePlaces] = []
