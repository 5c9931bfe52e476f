"""The Python interpreter of a worker: polybench's own, or that of another environment.

polybench does not install anything into another environment, which needs the framework and NumPy. Its path
gets a folder of links to this polybench, and to the small packages of a worker that it lacks and can import.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta

from polybench import errors
from polybench.data import supervisor
from polybench.engines import ENGINES, EngineSpec
from polybench.errors import EngineUnavailable

MIN_PYTHON = (3, 11)
"""Equals `requires-python` of `pyproject.toml`."""

_BUNDLED_PACKAGES = {"msgspec": True, "platformdirs": False, "tomli_w": False}
"""Packages that a worker imports apart from NumPy -> whether they are compiled for one Python ABI."""

_EXTRAS_PATTERN = re.compile(rf"'{errors.DISTRIBUTION}\[([\w,]+)\]'")
"""Extras in a hint. An extra without an engine has the name of the one package that it installs."""

_TIMEOUT_SECONDS = 60.0


class Interpreter(NamedTuple):
    """A Python executable, and folders to prepend to its path; `version` is None for polybench's own."""

    executable: str
    folders: tuple[str, ...] = ()
    version: str | None = None

    def with_python_path(self, user_environment: Mapping[str, str]) -> dict[str, str]:
        """Return the user's environment with a PYTHONPATH on which this Python finds polybench.

        Empty entries are removed: Python would import from the current folder.
        """
        user_paths = user_environment.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join(filter(None, [*self.folders, *user_paths]))
        # PYTHONHOME names the standard library of polybench's own Python.
        variables = {
            name: value for name, value in user_environment.items() if name != "PYTHONHOME" or self.version is None
        }
        return {**variables, "PYTHONPATH": path}

    def adapt_hint(self, hint: str, engine_spec: EngineSpec) -> str:
        """Return the hint with its pip command for this environment instead of polybench's own."""
        if self.version is None or not hint.startswith("pip "):
            return hint
        packages = {spec.extra: spec.packages for spec in (*ENGINES.values(), engine_spec)}

        def package_names(match: re.Match[str]) -> str:
            return " ".join(name for extra in match[1].split(",") for name in packages.get(extra) or (extra,))

        return f"{self.executable} -m {_EXTRAS_PATTERN.sub(package_names, hint)}"


def _own_interpreter() -> Interpreter:
    root = Path(__file__).parents[2]
    installed = root.name in ("site-packages", "dist-packages")
    return Interpreter(sys.executable, () if installed else (str(root),))


OWN_INTERPRETER = _own_interpreter()


_VersionPart = Annotated[int, Meta(ge=0, lt=1000)]


class _PythonInfo(NamedTuple):
    version: tuple[Literal[3], _VersionPart, _VersionPart]
    abi: str
    missing_packages: list[str]


def resolve_interpreter(python: str, link_folder: Path) -> Interpreter:
    """Prepare the Python of another environment to run this polybench.

    `link_folder` is created, with links to polybench and bundled packages; it is needed while workers run. Raises
    EngineUnavailable if Python does not run, is too old, or lacks a package that cannot be bundled.
    """
    version, abi, missing_packages = _query(python)
    text = ".".join(map(str, version))
    if version < MIN_PYTHON:
        minimum = ".".join(map(str, MIN_PYTHON))
        raise EngineUnavailable(
            f"{python} is Python {text}; polybench needs {minimum} or newer",
            f"recreate the environment with python{minimum}",
        )
    same_abi = abi == sysconfig.get_config_var("SOABI")
    bundled = [
        name for name in missing_packages if name in _BUNDLED_PACKAGES and (same_abi or not _BUNDLED_PACKAGES[name])
    ]
    if not_bundled := [name for name in missing_packages if name not in bundled]:
        names = " ".join(not_bundled)
        raise EngineUnavailable(
            f"the environment of {python} (Python {text}) lacks {names}", f"{python} -m pip install {names}"
        )
    link_folder.mkdir(parents=True)
    for name in ("polybench", *bundled):
        (link_folder / name).symlink_to(_package_folder(name))
    return Interpreter(python, (str(link_folder),), text)


def _query(python: str) -> _PythonInfo:
    """Run the program, which may be anything, under a supervisor."""
    command = [python, str(Path(__file__).with_name("python_info.py")), "numpy", *_BUNDLED_PACKAGES]
    environment = Interpreter(python, version="?").with_python_path(os.environ)
    done = supervisor.run(command, _TIMEOUT_SECONDS, env=environment, cwd="/")
    reason = (done.stderr.strip().splitlines() or [f"it exited with code {done.returncode}"])[-1][:200]
    if not done.returncode:
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.json.decode(done.stdout, type=_PythonInfo)
        reason = f"unexpected output {done.stdout[:60]!r}"
    raise EngineUnavailable(f"{python} does not run as Python: {reason}", "recreate the environment")


def _package_folder(name: str) -> Path:
    """Return the folder of a package in polybench's own environment."""
    spec = importlib.util.find_spec(name)
    assert spec is not None, name
    assert spec.origin is not None, name
    return Path(spec.origin).parent
