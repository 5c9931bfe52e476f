"""Where the environments of a study are: judged by their files, nothing is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from polybench.core.errors import BadInput
from polybench.core.spec import Cell
from polybench.data.disk import is_there
from polybench.engines import EngineRow

_PYTHON = Path("bin", "python")


class Place(NamedTuple):
    """What the workers of a cell are started with, instead of polybench's own; None is that."""

    python: str | None = None
    project: str | None = None


HERE = Place()


def absolute(environments: Mapping[str, str]) -> dict[str, str]:
    """The same paths, whatever the current folder; links stay, since a virtual environment's python is one.

    Raises:
        BadInput: one is not there.
    """
    found = {}
    for name, path in environments.items():
        try:
            place = Path(path).expanduser().absolute()
        except RuntimeError as error:  # no such user
            raise BadInput(f"--env {name}={path}: {error}") from None
        if not is_there(place):
            raise BadInput(f"--env {name}={path}: there is no such folder or file")
        found[name] = str(place)
    return found


def place_of(cell: Cell, row: EngineRow, environments: Mapping[str, str]) -> Place:
    """Where this cell runs.

    Args:
        cell: of the engine in `row`.
        row: says whether the engine has projects of its own, beside Python's environments.
        environments: those of the study, with absolute paths.

    Raises:
        BadInput: there is nothing that could run this engine.
    """
    if cell.environment is None:
        return HERE
    path = Path(environments[cell.environment])
    if row.project_files and path.name in row.project_files:
        path = path.parent
    if path.is_dir():
        if os.access(path / _PYTHON, os.X_OK):
            return Place(python=str(path / _PYTHON))
        if any((path / name).is_file() for name in row.project_files):
            return Place(project=str(path))
        wanted = " nor ".join(map(str, (_PYTHON, *row.project_files[:1])))
        raise BadInput(
            f"--env {cell.environment}={path}: no environment for {cell.engine}: the folder has"
            f" {'neither' if row.project_files else 'no'} {wanted}"
        )
    if not os.access(path, os.X_OK):
        raise BadInput(
            f"--env {cell.environment}={path}: no program; name an environment's folder, or its {_PYTHON}"
        )
    return Place(python=str(path))
