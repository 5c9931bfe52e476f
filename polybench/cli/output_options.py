"""Options of how a study is printed and saved: those that do not belong to the study itself."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class OutputOptions(NamedTuple):
    """The options of the help panel "Output"."""

    columns: str | None = None
    published: bool = False
    format: str = "table"
    output: Path | None = None
    results: Path | None = None
    save: bool = True
    explain: bool = False
    tensorboard: Path | None = None
    mlflow: str | None = None
    quiet: bool = False
    verbose: bool = False
    anonymous: bool = False
