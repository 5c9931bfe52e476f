"""Progress reports of a running study; the runner itself prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from polybench.schema.result import Status


class ConfigurationProgress(NamedTuple):
    """Progress of a configuration.

    Attributes:
        name: as in the table.
        parity: status of the parity check: "pass", "fail" or "skipped".
        status: of the configuration so far.
        rounds: number of measured rounds in all process runs.
        median_step_seconds: median step time of these rounds; None before the first.
    """

    name: str
    parity: str
    status: Status
    rounds: int
    median_step_seconds: float | None


class Progress(Protocol):
    """Receives progress reports, only between measurements."""

    def on_stage(self, text: str) -> None:
        """Report what runs now."""
        ...

    def on_time_left(self, seconds: float) -> None:
        """Report the maximum expected remaining time of the study."""
        ...

    def on_configurations(self, configurations: Sequence[ConfigurationProgress]) -> None:
        """Report the progress of each configuration after every change."""
        ...

    def on_warning(self, text: str) -> None:
        """Report a warning, which is also in the result."""
        ...


class NullProgress:
    """Ignores all reports."""

    def on_stage(self, text: str) -> None:
        """Ignore the report."""

    def on_time_left(self, seconds: float) -> None:
        """Ignore the report."""

    def on_configurations(self, configurations: Sequence[ConfigurationProgress]) -> None:
        """Ignore the report."""

    def on_warning(self, text: str) -> None:
        """Ignore the warning; it is also in the result."""


class CallbackProgress:
    """Passes each report as a line of text to a function, such as `print`."""

    def __init__(self, callback: Callable[[str], object]) -> None:
        self._callback = callback

    def on_stage(self, text: str) -> None:
        """Pass the text."""
        self._callback(text)

    def on_time_left(self, seconds: float) -> None:
        """Pass the remaining time if it is at least one second."""
        if seconds >= 1:
            self._callback(f"about {seconds:.0f} s left")

    def on_configurations(self, configurations: Sequence[ConfigurationProgress]) -> None:
        """Ignore the report, since stages are reported as lines."""

    def on_warning(self, text: str) -> None:
        """Pass the text as a warning."""
        self._callback(f"warning: {text}")
