"""What `polybench setup flux` remembered: a Julia and its project, in polybench's configuration file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import platformdirs
import tomli_w

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.package import ENGINE, SETUP

_PRECOMPILED = "flux-precompiled"


def configuration_file() -> Path:
    """Polybench's own, for this user."""
    return Path(platformdirs.user_config_dir("polybench")) / "config.toml"


def recall() -> dict[str, str] | None:
    """What is remembered of a Julia: `julia` and `project`, and what else `remember` was given.

    Raises:
        Unavailable: the file cannot be read, or has only one of them.
    """
    table = _read().get(ENGINE, {})
    if not table:
        return None
    for name in ("julia", "project"):
        if name not in table:
            raise Unavailable(f"{configuration_file()} has a [{ENGINE}] without {name!r}", SETUP)
    return table


def remember(executable: str, project: str, **more: str) -> Path:
    """Keep both for later runs, and what was learned of them, beside whatever else the file says."""
    _write(_read() | {ENGINE: {"julia": executable, "project": project, **more}})
    return configuration_file()


def precompiled() -> dict[str, str]:
    """Project -> SHA-256 of PolyBench's sources as `setup` had them compiled there."""
    return _read().get(_PRECOMPILED, {})


def remember_precompiled(project: str, sha256: str) -> None:
    """Keep with which sources that was done."""
    _write(_read() | {_PRECOMPILED: precompiled() | {project: sha256}})


def forget() -> None:
    """Go back to what juliapkg has; a file that cannot be read stays."""
    if configuration_file().exists():
        _write({name: table for name, table in _read().items() if name != ENGINE})


def _read() -> dict[str, dict[str, str]]:
    file = configuration_file()
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise Unavailable(f"{file} cannot be read: {error}", f"mend or remove it, then: {SETUP}") from error


def _write(tables: dict[str, dict[str, str]]) -> None:
    file = configuration_file()
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(tomli_w.dumps(tables), "utf-8")
    except OSError as error:
        raise Unavailable(
            f"{file} cannot be written: {error.strerror}",
            "make it writable, or set XDG_CONFIG_HOME to another folder",
        ) from error
