"""What `polybench setup flux` remembered: a Julia and its project, in polybench's configuration file."""

from __future__ import annotations

import tomllib
from pathlib import Path

import platformdirs
import tomli_w

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.package import ENGINE, SETUP


def configuration_file() -> Path:
    """Polybench's own, for this user."""
    return Path(platformdirs.user_config_dir("polybench")) / "config.toml"


def recall() -> tuple[str, str] | None:
    """The remembered executable and project.

    Raises:
        Unavailable: the file cannot be read, or has only one of them.
    """
    table = _read().get(ENGINE, {})
    if not table:
        return None
    try:
        return table["julia"], table["project"]
    except KeyError as missing:
        raise Unavailable(f"{configuration_file()} has a [{ENGINE}] without {missing}", SETUP) from None


def remember(executable: str, project: str) -> Path:
    """Keep both for later runs, beside whatever else the file says."""
    _write(_read() | {ENGINE: {"julia": executable, "project": project}})
    return configuration_file()


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
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(tomli_w.dumps(tables), "utf-8")
