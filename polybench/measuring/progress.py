"""What a running study tells whoever watches it; the runner itself prints nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class Progress(Protocol):
    """Called between measurements only, never during one."""

    def stage(self, text: str) -> None:
        """What runs now."""
        ...

    def remaining(self, seconds: float) -> None:
        """How long the rest of the study is expected to take, at most."""
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

    def warn(self, text: str) -> None:
        """A line that says so."""
        self._tell(f"warning: {text}")
