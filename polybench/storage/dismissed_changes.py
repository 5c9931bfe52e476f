"""Change points of a history that a user has dismissed: one file for each study at which one begins."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from polybench.errors import BadInput
from polybench.schema.encoding import encode
from polybench.storage.store import write_file_atomically

_FOLDER = "history"
"""Subfolder of the results. Unlike the index of studies, it cannot be rebuilt."""


class _Dismissed(msgspec.Struct, kw_only=True):
    schema: str = "polybench.dismissed-changes/2"
    study: str
    configurations: list[str]


def load_dismissed(results: Path) -> dict[str, frozenset[str]]:
    """Return the configurations with dismissed change points by study; unreadable files are ignored."""
    dismissed: dict[str, frozenset[str]] = {}
    for path in sorted(results.glob(f"{_FOLDER}/*.json")):
        try:
            found = msgspec.json.decode(path.read_bytes(), type=_Dismissed)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        dismissed[found.study] = dismissed.get(found.study, frozenset()) | frozenset(found.configurations)
    return dismissed


def dismiss(results: Path, study: str, file: str, configurations: Iterable[str]) -> None:
    """Dismiss the change points of these configurations at this study, saved in `file`.json.

    Raises:
        BadInput: the file cannot be written.
    """
    all_configurations = load_dismissed(results).get(study, frozenset()) | frozenset(configurations)
    path = results / _FOLDER / f"{file}.json"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        document = _Dismissed(study=study, configurations=sorted(all_configurations))
        write_file_atomically(path, encode(document))
    except OSError as error:
        raise BadInput(f"cannot write to {path.parent}: {error.strerror}") from error
