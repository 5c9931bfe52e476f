"""The Python of a worker: polybench's own, or that of another environment, into which nothing is installed.

Another environment has the framework, and NumPy. It gets this polybench as a folder on its path that holds
nothing else, and of the small libraries of a worker those that it lacks and can load.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from polybench.core.errors import Unavailable
from polybench.engines import ENGINES, EngineRow

OLDEST = (3, 11)
"""`pyproject.toml` says so of polybench itself."""

_LENT = {"msgspec": True, "platformdirs": False, "tomli_w": False}
"""What a worker imports beside NumPy -> whether it is compiled, and then for one kind of Python only."""

_EXTRAS = re.compile(r"'polybench\[([\w,]+)\]'")
"""In a remedy; those that are no engine's have the name of the one package that they install."""

_SECONDS = 60.0
_QUESTIONS = f"""
import importlib.util, json, sys, sysconfig
def lacks(name):
    return importlib.util.find_spec(name) is None
print(json.dumps([sys.version_info[:3], sysconfig.get_config_var("SOABI") or "",
    [name for name in {["numpy", *_LENT]!r} if lacks(name)]]))
"""


class Interpreter(NamedTuple):
    """A Python, and the folders that its path begins with; `version` is None for polybench's own."""

    executable: str
    folders: tuple[str, ...] = ()
    version: str | None = None

    def variables(self, user: Mapping[str, str]) -> dict[str, str]:
        """The user's variables with which this Python finds polybench, whatever folder it is started in.

        An empty entry of the user's path would be that folder.
        """
        theirs = user.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join(filter(None, [*self.folders, *theirs]))
        # The standard library of another Python.
        kept = {name: value for name, value in user.items() if name != "PYTHONHOME" or self.version is None}
        return {**kept, "PYTHONPATH": path}

    def remedy(self, text: str, row: EngineRow) -> str:
        """A remedy that would mend polybench's own environment, for this one."""
        if self.version is None or not text.startswith("pip "):
            return text
        packages = {one.extra: one.packages for one in (*ENGINES.values(), row)}

        def names(found: re.Match[str]) -> str:
            return " ".join(name for extra in found[1].split(",") for name in packages.get(extra) or (extra,))

        return f"{self.executable} -m {_EXTRAS.sub(names, text)}"


def _own() -> Interpreter:
    root = Path(__file__).parents[2]
    installed = root.name in ("site-packages", "dist-packages")
    return Interpreter(sys.executable, () if installed else (str(root),))


OWN = _own()


class _Answers(NamedTuple):
    version: tuple[int, int, int]
    abi: str
    lacks: list[str]


def interpreter(python: str, folder: Path) -> Interpreter:
    """The Python of another environment, with this polybench.

    Args:
        python: its path.
        folder: for links to what is lent to it; made here, and needed while its workers live.

    Raises:
        Unavailable: it does not run, is too old, or lacks what cannot be lent.
    """
    version, abi, lacks = _ask(python)
    text = ".".join(map(str, version))
    if version < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise Unavailable(
            f"{python} is Python {text}, and polybench needs {oldest} or newer",
            f"make the environment with python{oldest}",
        )
    same = abi == sysconfig.get_config_var("SOABI")
    borrowed = [name for name in lacks if name in _LENT and (same or not _LENT[name])]
    if missing := [name for name in lacks if name not in borrowed]:
        names = " ".join(missing)
        raise Unavailable(
            f"the environment of {python} (Python {text}) lacks {names}", f"{python} -m pip install {names}"
        )
    folder.mkdir(parents=True)
    for name in ("polybench", *borrowed):
        (folder / name).symlink_to(_package(name))
    return Interpreter(python, (str(folder),), text)


def _ask(python: str) -> _Answers:
    try:
        run = subprocess.run(
            [python, "-c", _QUESTIONS],
            env=Interpreter(python, version="?").variables(os.environ),
            cwd="/",  # `-c` would import from the current folder
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_SECONDS, check=True,
        )  # fmt: skip
        return msgspec.json.decode(run.stdout, type=_Answers)
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["it said nothing"])[-1]
        why = f"it ended with code {error.returncode}: {last[:200]}"
    except msgspec.MsgspecError:
        why = f"it answers {run.stdout[:60]!r}"
    except (OSError, subprocess.TimeoutExpired) as error:
        why = str(error)
    raise Unavailable(f"{python} does not run as Python: {why}", "make the environment anew")


def _package(name: str) -> Path:
    """The folder of a package of polybench's own environment."""
    found = importlib.util.find_spec(name)
    assert found is not None, name
    assert found.origin is not None, name
    return Path(found.origin).parent
