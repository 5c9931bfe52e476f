"""Steps of a history that somebody knows of already: a file for each study at which one begins."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from polybench.core.document.study import json_of
from polybench.core.errors import BadInput
from polybench.report.saved_studies import write_atomically

_FOLDER = "history"
"""Beside the studies: unlike their index it cannot be made again."""


class _Known(msgspec.Struct, kw_only=True):
    schema: str = "polybench.acknowledged/1"
    study: str
    cells: list[str]


def acknowledged(results: Path) -> dict[str, frozenset[str]]:
    """By study, the cells; what cannot be read counts as not acknowledged."""
    known: dict[str, frozenset[str]] = {}
    for path in sorted(results.glob(f"{_FOLDER}/*.json")):
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_Known)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        known[found.study] = known.get(found.study, frozenset()) | frozenset(found.cells)
    return known


def acknowledge(results: Path, study: str, file: str, cells: Iterable[str]) -> None:
    """Remember the steps of these cells at this study, whose document is `file`.json.

    Raises:
        BadInput: nothing can be written there.
    """
    all_cells = acknowledged(results).get(study, frozenset()) | frozenset(cells)
    path = results / _FOLDER / f"{file}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json_of(_Known(study=study, cells=sorted(all_cells))))
    except OSError as error:
        raise BadInput(f"cannot write to {path.parent}: {error.strerror}") from error
