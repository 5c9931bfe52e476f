"""What a running study tells whoever watches it; the runner itself prints nothing."""

from __future__ import annotations

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
