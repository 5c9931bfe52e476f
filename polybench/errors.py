"""The errors that polybench raises, with their exit codes and what their messages suggest.

All error classes are exported: `polybench.BadInput` and so on. This module imports nothing else of polybench.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, TypeVar


class PolybenchError(Exception):
    """An error that the user can resolve."""

    __module__ = "polybench"  # its public location

    exit_code: ClassVar[int] = 1
    """Exit code of the program."""


class BadInput(PolybenchError):
    """An argument, study file or data set that is invalid on every machine.

    The message contains the problem, its location, and the fix.
    """

    __module__ = "polybench"

    exit_code = 2


class RequiredEngineMissing(PolybenchError):
    """An engine or device is unavailable, and `--strict` requires it."""

    __module__ = "polybench"

    exit_code = 3


class EngineUnavailable(PolybenchError):
    """An engine or device that this machine lacks; the study lists it as unavailable.

    `reason` names what is missing, `hint` is the command or action that fixes it.
    """

    __module__ = "polybench"

    exit_code = 4

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason, hint)
        self.reason, self.hint = reason, hint

    def __str__(self) -> str:
        return self.reason


class ConfigurationFailed(PolybenchError):
    """A worker crashed, hung, sent a malformed answer, or computed a value that is not finite."""

    __module__ = "polybench"


def validation_problem(error: Exception) -> str:
    """Return msgspec's message without its place; every number above 0 is at least 1e-100."""
    return str(error).partition(" - at ")[0].replace("`float` >= 1e-100", "a number above 0")


def format_validation_error(error: Exception) -> str:
    """Return msgspec's message with the field as users know it: `engines`, not "at `$.engines`"."""
    problem, where = validation_problem(error), str(error).partition(" - at ")[2]
    field = where.strip("`").removeprefix("$").removeprefix(".").replace("[...]", "")
    return f"{field}: {problem}" if field else problem


__version__ = "0.1.0"
DISTRIBUTION = "polybench-dl"
"""The name on the package index, which has another project named `polybench` (polynomial arithmetic)."""


def install_command(*extras: str, version: str | None = None) -> str:
    """Return the command that installs polybench: with these extras, or exactly this version."""
    if extras:
        return f"pip install '{DISTRIBUTION}[{','.join(extras)}]'"
    return f"pip install {DISTRIBUTION}=={version}" if version else f"pip install --upgrade {DISTRIBUTION}"


def import_name_conflict() -> str | None:
    """Return a warning if the other project `polybench` is installed, which overwrites our package."""
    if any(other for folder in sys.path if folder for other in Path(folder).glob("polybench-[0-9]*.dist-info")):
        return (
            "another project named polybench is installed and has the same import name:"
            f" pip uninstall polybench; pip install --force-reinstall {DISTRIBUTION}"
        )
    return None


T = TypeVar("T")


_ALIASES = {"tensorflow": "tf", "pytorch": "torch", "julia": "flux", "flux.jl": "flux"}
"""Common names of engines that are not names here, for suggestions."""


def lookup_or_suggest(name: str, table: Mapping[str, T], what: str) -> T:
    """Return the entry `name` of `table`; `what` describes an entry, its noun first.

    For example, `variant of torch` becomes "variants of torch" in a message that lists them.

    Raises:
        BadInput: the name is unknown; the message has the nearest valid names, then all of them.
    """
    if name in table:
        return table[name]
    alias = _ALIASES.get(name.lower(), "")
    matches = [alias] if alias in table else difflib.get_close_matches(name, table)
    matches = matches or [one for one in table if len(name) > 2 and name in one][:3]  # median: median_step_time
    nearest = " or ".join(map(repr, matches))
    question = f"did you mean {nearest}? " if nearest else ""
    noun, *rest = what.split(" ")
    plural = " ".join((f"{noun}es" if noun.endswith("s") else f"{noun}s", *rest))
    valid = f"{plural} are: {', '.join(sorted(table))}" if table else f"the list of {plural} is empty"
    raise BadInput(f"unknown {what} {name!r}; {question}{valid}")


def split_names(text: str) -> tuple[str, ...]:
    """Split `a,b,c`; spaces and empty parts are ignored."""
    return tuple(part for name in text.split(",") if (part := name.strip()))
