"""The errors that polybench itself raises."""


class BadInput(Exception):
    """An argument, study file or data set that no machine could run (exit code 2).

    The message says what was wrong, where, and what to do.
    """


class Unavailable(Exception):
    """An engine or device that this machine does not have.

    `reason` says what is missing, `remedy` the one command or action that mends it.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


class CellFailed(Exception):
    """A worker crashed, hung, answered nonsense or computed something that is not finite."""


class StrictlyUnavailable(Exception):
    """With `--strict`: an engine or device that was asked for is not there (exit code 3)."""
