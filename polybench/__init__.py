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
    from polybench.api import DiffResult as DiffResult
    from polybench.api import ExplanationResult as ExplanationResult
    from polybench.api import HistoryResult as HistoryResult
    from polybench.api import LayersResult as LayersResult
    from polybench.api import MachinesResult as MachinesResult
    from polybench.api import MergeResult as MergeResult
    from polybench.api import OverheadResult as OverheadResult
    from polybench.api import ParityResult as ParityResult
    from polybench.api import PeakResult as PeakResult
    from polybench.api import StudyResult as StudyResult
    from polybench.api import SweepResult as SweepResult
    from polybench.api import compare as compare
    from polybench.api import diff as diff
    from polybench.api import explain as explain
    from polybench.api import history as history
    from polybench.api import layers as layers
    from polybench.api import load as load
    from polybench.api import load_overhead as load_overhead
    from polybench.api import load_sweep as load_sweep
    from polybench.api import merge as merge
    from polybench.api import overhead as overhead
    from polybench.api import parity as parity
    from polybench.api import peak as peak
    from polybench.api import report as report
    from polybench.api import sweep as sweep

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
    "layers",
    "load",
    "load_overhead",
    "load_sweep",
    "merge",
    "overhead",
    "parity",
    "peak",
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
