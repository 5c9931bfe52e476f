"""Finds the environments of a study by their files; starts nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from polybench.data.disk import exists
from polybench.engines import EngineSpec
from polybench.errors import BadInput
from polybench.schema.options import Configuration

_PYTHON = Path("bin", "python")


class EnvironmentSpec(NamedTuple):
    """Python and Julia project of a configuration's workers; None means polybench's own."""

    python: str | None = None
    project: str | None = None


OWN_ENVIRONMENT = EnvironmentSpec()


def absolute_paths(environments: Mapping[str, str]) -> dict[str, str]:
    """Return absolute paths; keep links, because a virtual environment's python is one.

    Raises BadInput if a path does not exist.
    """
    found = {}
    for name, path in environments.items():
        try:
            absolute = Path(path).expanduser().absolute()
        except RuntimeError as error:  # no such user
            raise BadInput(f"--env {name}={path}: {error}") from None
        if not exists(absolute):
            raise BadInput(f"--env {name}={path}: no such folder or file")
        found[name] = str(absolute)
    return found


def resolve_environment(
    configuration: Configuration, spec: EngineSpec, environments: Mapping[str, str]
) -> EnvironmentSpec:
    """Return the environment of a configuration of the engine in `spec`, from absolute paths by name.

    Raises BadInput if the path cannot run this engine.
    """
    if configuration.environment is None:
        return OWN_ENVIRONMENT
    path = Path(environments[configuration.environment])
    if spec.project_files and path.name in spec.project_files:
        path = path.parent
    if path.is_dir():
        if os.access(path / _PYTHON, os.X_OK):
            return EnvironmentSpec(python=str(path / _PYTHON))
        if any((path / name).is_file() for name in spec.project_files):
            return EnvironmentSpec(project=str(path))
        wanted = " nor ".join(map(str, (_PYTHON, *spec.project_files[:1])))
        raise BadInput(
            f"--env {configuration.environment}={path}: not an environment for {configuration.engine}: the folder has"
            f" {'neither' if spec.project_files else 'no'} {wanted}"
        )
    if not os.access(path, os.X_OK):
        raise BadInput(
            f"--env {configuration.environment}={path}: not executable:"
            f" expected an environment's folder or its {_PYTHON}"
        )
    return EnvironmentSpec(python=str(path))
