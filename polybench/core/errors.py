"""The errors that polybench raises: one class hierarchy, with the exit code of each class.

All are exported: `polybench.BadInput` and so on.
"""

from __future__ import annotations

from typing import ClassVar


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
        self.reason = reason
        self.hint = hint

    def __str__(self) -> str:
        return self.reason


class ConfigurationFailed(PolybenchError):
    """A worker crashed, hung, sent a malformed answer, or computed a value that is not finite."""

    __module__ = "polybench"


def format_validation_error(error: Exception) -> str:
    """Return msgspec's message with the field as users know it: `engines`, not "at `$.engines`"."""
    problem, _, where = str(error).partition(" - at ")
    field = where.strip("`").removeprefix("$").removeprefix(".").replace("[...]", "")
    return f"{field}: {problem}" if field else problem
