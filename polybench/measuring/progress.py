"""What a running study tells whoever watches it; the runner itself prints nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from polybench.core.document.result import Status


class CellSoFar(NamedTuple):
    """How far a cell is.

    Attributes:
        name: as in the table.
        identity: "pass", "fail" or "skipped".
        status: whether it goes on.
        rounds: that were measured, of all processes.
        step_seconds: a typical step of these; None before the first.
    """

    name: str
    identity: str
    status: Status
    rounds: int
    step_seconds: float | None


class Progress(Protocol):
    """Called between measurements only, never during one."""

    def stage(self, text: str) -> None:
        """What runs now."""
        ...

    def remaining(self, seconds: float) -> None:
        """How long the rest of the study is expected to take, at most."""
        ...

    def cells(self, cells: Sequence[CellSoFar]) -> None:
        """How far each cell is, whenever that has changed."""
        ...

    def warn(self, text: str) -> None:
        """Something that the reader of the results must know."""
        ...


class Silent:
    """Tells nobody."""

    def stage(self, text: str) -> None:
        """Nothing."""

    def remaining(self, seconds: float) -> None:
        """Nothing."""

    def cells(self, cells: Sequence[CellSoFar]) -> None:
        """Nothing."""

    def warn(self, text: str) -> None:
        """Nothing; warnings are in the result too."""


class Told:
    """Tells a function, `print` for one, a line at a time."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        self._tell = tell

    def stage(self, text: str) -> None:
        """A line."""
        self._tell(text)

    def remaining(self, seconds: float) -> None:
        """A line, where that is a second or more."""
        if seconds >= 1:
            self._tell(f"about {seconds:.0f} s left")

    def cells(self, cells: Sequence[CellSoFar]) -> None:
        """Nothing: the lines say what runs."""

    def warn(self, text: str) -> None:
        """A line that says so."""
        self._tell(f"warning: {text}")
