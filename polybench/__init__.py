"""polybench trains the identical network in several frameworks and compares their performance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from polybench.errors import (
    BadInput,
    ConfigurationFailed,
    EngineUnavailable,
    PolybenchError,
    RequiredEngineMissing,
    __version__,
)

if TYPE_CHECKING:
    from polybench.api import *

__all__ = [
    "BadInput",
    "ConfigurationFailed",
    "DiffResult",
    "EngineUnavailable",
    "ExplanationResult",
    "HistoryResult",
    "LayersResult",
    "MachinesResult",
    "MergeResult",
    "OverheadResult",
    "ParityResult",
    "PeakResult",
    "PolybenchError",
    "RequiredEngineMissing",
    "StudyResult",
    "SweepResult",
    "__version__",
    "compare",
    "diff",
    "explain",
    "history",
    "import_model",
    "layers",
    "load",
    "load_overhead",
    "load_sweep",
    "merge",
    "overhead",
    "parity",
    "peak",
    "record",
    "report",
    "sweep",
]


def __getattr__(name: str) -> Any:
    # Imported on demand, so that the command line starts without NumPy.
    if name in __all__:
        from polybench import api

        return getattr(api, name)
    raise AttributeError(f"module 'polybench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
