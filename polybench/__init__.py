"""polybench trains the identical network in several frameworks and compares what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polybench.core.errors import BadInput, CellFailed, PolybenchError, StrictlyUnavailable, Unavailable
from polybench.core.version import __version__

if TYPE_CHECKING:
    from polybench.api import StudyResult as StudyResult
    from polybench.api import compare as compare

__all__ = [
    "BadInput",
    "CellFailed",
    "PolybenchError",
    "StrictlyUnavailable",
    "StudyResult",
    "Unavailable",
    "__version__",
    "compare",
]


def __getattr__(name: str) -> Any:
    # Late, so that the command line starts without NumPy.
    if name in ("StudyResult", "compare"):
        from polybench import api

        return getattr(api, name)
    raise AttributeError(f"module 'polybench' has no attribute {name!r}")
