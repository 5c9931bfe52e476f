"""Progress of several machines, told as of one."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.fleet.messages import CellLine
from polybench.measuring.progress import CellSoFar, Progress


class Gathered:
    """What all machines tell, each line with its machine; with one machine it is that one's own.

    Args:
        progress: told of all.
        several: whether there are several machines.
    """

    def __init__(self, progress: Progress, *, several: bool) -> None:
        self._progress, self._several = progress, several
        self._cells: dict[str, list[CellSoFar]] = {}
        self._seconds: dict[str, float] = {}

    def stage(self, text: str) -> None:
        """Of the driver itself."""
        self._progress.stage(text)

    def warn(self, text: str) -> None:
        """Of the driver itself."""
        self._progress.warn(text)

    def of(self, label: str) -> OfOne:
        """What this machine tells goes there."""
        return OfOne(self, label)

    def say(self, label: str, text: str) -> str:
        """The text with its machine, where there are several."""
        return f"{label}: {text}" if self._several else text

    def told(self, label: str, cells: Sequence[CellLine]) -> None:
        """How far this machine's cells are, beside all others'."""
        self._cells[label] = [
            CellSoFar(
                f"{label}:{one.name}" if self._several else one.name,
                one.identity,
                one.status,
                one.rounds,
                one.step_seconds,
            )
            for one in cells
        ]
        self._progress.cells([cell for several in self._cells.values() for cell in several])

    def left(self, label: str, seconds: float) -> None:
        """The longest of all that were told: machines work side by side."""
        self._seconds[label] = seconds
        self._progress.remaining(max(self._seconds.values()))


class OfOne:
    """One machine's part in it."""

    def __init__(self, gathered: Gathered, label: str) -> None:
        self._gathered, self._label = gathered, label

    def stage(self, text: str) -> None:
        """With its machine."""
        self._gathered.stage(self._gathered.say(self._label, text))

    def remaining(self, seconds: float) -> None:
        """With all others'."""
        self._gathered.left(self._label, seconds)

    def cells(self, cells: Sequence[CellLine]) -> None:
        """With all others'."""
        self._gathered.told(self._label, cells)

    def warn(self, text: str) -> None:
        """With its machine."""
        self._gathered.warn(self._gathered.say(self._label, text))
