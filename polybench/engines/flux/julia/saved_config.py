"""The Julia and project that `polybench setup flux` saved in polybench's configuration file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import platformdirs
import tomli_w

from polybench.engines.flux.julia.package import ENGINE, SETUP
from polybench.errors import EngineUnavailable

_PRECOMPILED = "flux-precompiled"


def configuration_file() -> Path:
    """Return the path of the user's configuration file."""
    return Path(platformdirs.user_config_dir("polybench")) / "config.toml"


def load() -> dict[str, str] | None:
    """Load `julia`, `project` and further values of `save`, or None.

    Raises:
        EngineUnavailable: the file cannot be read, or one of the two is missing.
    """
    table = _read().get(ENGINE, {})
    if not table:
        return None
    for name in ("julia", "project"):
        if name not in table:
            raise EngineUnavailable(f"{configuration_file()} has a [{ENGINE}] without {name!r}", SETUP)
    return table


def save(executable: str, project: str, **more: str) -> Path:
    """Save both paths and further values; keep other tables of the file."""
    _write(_read() | {ENGINE: {"julia": executable, "project": project, **more}})
    return configuration_file()


def precompiled() -> dict[str, str]:
    """Load the SHA-256 of PolyBench's sources that setup precompiled, by project."""
    return _read().get(_PRECOMPILED, {})


def save_precompiled(project: str, sha256: str) -> None:
    """Save the SHA-256 of the precompiled sources."""
    _write(_read() | {_PRECOMPILED: precompiled() | {project: sha256}})


def delete() -> None:
    """Delete the saved Julia, so that juliapkg's is used."""
    if configuration_file().exists():
        _write({name: table for name, table in _read().items() if name != ENGINE})


def _read() -> dict[str, dict[str, str]]:
    file = configuration_file()
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise EngineUnavailable(f"{file} cannot be read: {error}", f"fix or delete it, then: {SETUP}") from error


def _write(tables: dict[str, dict[str, str]]) -> None:
    file = configuration_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(tomli_w.dumps(tables), "utf-8")
    except OSError as error:
        raise EngineUnavailable(
            f"{file} cannot be written: {error.strerror}",
            "make it writable, or set XDG_CONFIG_HOME to another folder",
        ) from error
