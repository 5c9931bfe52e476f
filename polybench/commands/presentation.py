"""How a study is shown and kept: the options that are not the study's."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Presentation(NamedTuple):
    """The options of the panel "What comes out"."""

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
