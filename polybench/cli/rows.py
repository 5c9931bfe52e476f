"""Lists of records, printed as JSON or as a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybench.cli.terminal import echo
from polybench.errors import lookup_or_suggest

Rows = list[dict[str, Any]]


def print_table(rows: Rows, format: str, table: Callable[[Rows], str]) -> None:
    """Print rows as one JSON array, or as the text that `table` returns; raise BadInput for other formats."""
    import msgspec

    lookup_or_suggest(format, {"table": None, "json": None}, "format")
    echo(msgspec.json.encode(rows).decode() if format == "json" else table(rows))
