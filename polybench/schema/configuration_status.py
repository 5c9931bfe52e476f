"""The fields that begin the record of a configuration in every document."""

from __future__ import annotations

from typing import Any

import msgspec

from polybench.schema.result import Result, Status


class ConfigurationStatus(msgspec.Struct, kw_only=True):
    """A configuration and its status. `reason` and `hint` are null if they do not apply."""

    configuration: str
    engine: str
    variant: str | None
    environment: str | None = None
    device: str
    status: Status
    reason: str | None = None
    hint: str | None = None


def status_fields(result: Result) -> dict[str, Any]:
    """Return these fields of a result."""
    return {name: getattr(result, name) for name in ConfigurationStatus.__struct_fields__}
