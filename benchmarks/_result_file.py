"""Rows of a long benchmark in a file of JSON lines, so that an interrupted run can continue."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class ResultFile:
    """The rows so far, in a file or only in memory.

    Args:
        path: path of the file; an existing file is continued.
        settings: fields of every row; only rows with the same settings count.
    """

    def __init__(self, path: Path | None, **settings: object) -> None:
        self._path = path
        self._settings = json.loads(json.dumps(settings))
        there = path.read_text().splitlines() if path is not None and path.exists() else []
        rows = [json.loads(line) for line in there]
        self.rows: list[Row] = [row for row in rows if self._settings.items() <= row.items()]

    def matching(self, **wanted: object) -> list[Row]:
        """Return the rows with these values, in order of measurement."""
        return [row for row in self.rows if wanted.items() <= row.items()]

    def add(self, **row: object) -> None:
        """Append a row; it is on disk when this returns."""
        full = {**self._settings, **row}
        self.rows.append(full)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(full) + "\n")
