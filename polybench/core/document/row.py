"""What a row of every document says first: which cell it is of, and what became of it."""

from __future__ import annotations

from typing import Any

import msgspec

from polybench.core.document.result import Result, Status


class Row(msgspec.Struct, kw_only=True):
    """One cell. `reason` and `remedy` are null where there is nothing to say or to mend."""

    cell: str
    engine: str
    variant: str | None
    environment: str | None = None
    device: str
    status: Status
    reason: str | None = None
    remedy: str | None = None


def fields_of(result: Result) -> dict[str, Any]:
    """The fields of a row that is about this result's cell."""
    return {name: getattr(result, name) for name in Row.__struct_fields__}
