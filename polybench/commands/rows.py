"""Rows of a list, printed as JSON or as a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from polybench.commands.terminal import echo
from polybench.core.names import pick

Rows = list[dict[str, Any]]


def print_rows(rows: Rows, format: str, table: Callable[[Rows], str]) -> None:
    """Print `rows` as one JSON array, or what `table` makes of them; raises BadInput for another format."""
    import msgspec

    pick(format, {"table": None, "json": None}, "format")
    echo(msgspec.json.encode(rows).decode() if format == "json" else table(rows))
