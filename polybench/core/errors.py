"""The errors that polybench itself raises: one tree, with the exit code of each in its class.

All are exported: `polybench.BadInput` and so on.
"""

from __future__ import annotations

from typing import ClassVar


class PolybenchError(Exception):
    """What polybench raises for a reason that its user can do something about."""

    __module__ = "polybench"  # where users find it

    exit_code: ClassVar[int] = 1
    """Of the program that ends with this error."""


class BadInput(PolybenchError):
    """An argument, study file or data set that no machine could run.

    The message says what was wrong, where, and what to do.
    """

    __module__ = "polybench"

    exit_code = 2


class StrictlyUnavailable(PolybenchError):
    """With `--strict`: an engine or device that was asked for is not there."""

    __module__ = "polybench"

    exit_code = 3


class Unavailable(PolybenchError):
    """An engine or device that this machine does not have; in a study a row that says so.

    `reason` says what is missing, `remedy` the one command or action that mends it.
    """

    __module__ = "polybench"

    exit_code = 4

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason, remedy)
        self.reason = reason
        self.remedy = remedy

    def __str__(self) -> str:
        return self.reason


class CellFailed(PolybenchError):
    """A worker crashed, hung, answered nonsense or computed something that is not finite."""

    __module__ = "polybench"


def said(error: Exception) -> str:
    """What msgspec found wrong, with the field in a user's words: not "at `$.engines`"."""
    problem, _, where = str(error).partition(" - at ")
    field = where.strip("`").removeprefix("$").removeprefix(".").replace("[...]", "")
    return f"{field}: {problem}" if field else problem
