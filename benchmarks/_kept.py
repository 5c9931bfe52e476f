"""Rows of a long benchmark, kept in a file of JSON lines, so that a stopped one goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]


class Kept:
    """The rows so far; in memory only where there is no file.

    Args:
        path: of the file; one that is there already is gone on with.
        settings: which every row has, so that only rows of a like run count.
    """

    def __init__(self, path: Path | None, **settings: object) -> None:
        self._path = path
        self._settings = json.loads(json.dumps(settings))
        there = path.read_text().splitlines() if path is not None and path.exists() else []
        rows = [json.loads(line) for line in there]
        self.rows: list[Row] = [row for row in rows if self._settings.items() <= row.items()]

    def matching(self, **wanted: object) -> list[Row]:
        """The rows with these values, in the order in which they came."""
        return [row for row in self.rows if wanted.items() <= row.items()]

    def add(self, **row: object) -> None:
        """Keep one more row; it is on disk when this returns."""
        full = {**self._settings, **row}
        self.rows.append(full)
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(full) + "\n")
