"""What figures of layers, limits and fixed costs have in common: intervals, a caption."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from polybench.core import units
from polybench.core.document.circumstances import Host
from polybench.core.errors import BadInput
from polybench.plots.style import Look, look

__all__ = [
    "Interval",
    "Look",
    "caption",
    "layout",
    "look",
    "milliseconds",
    "plotly",
    "with_intervals",
]

Interval = tuple[float, float]


def milliseconds(
    axis: str, seconds: Sequence[float | None], intervals: Sequence[Interval | None]
) -> dict[str, Any]:
    """As `with_intervals`, in ms."""
    return with_intervals(
        axis,
        [None if value is None else 1e3 * value for value in seconds],
        [interval and (1e3 * interval[0], 1e3 * interval[1]) for interval in intervals],
    )


def with_intervals(
    axis: str, values: Sequence[float | None], intervals: Sequence[Interval | None]
) -> dict[str, Any]:
    """Along an axis: values, and error bars to both ends of their intervals."""
    ends = [
        (0.0, 0.0) if value is None or interval is None else (interval[1] - value, value - interval[0])
        for value, interval in zip(values, intervals, strict=True)
    ]
    return {
        axis: list(values),
        f"error_{axis}": {
            "type": "data",
            "symmetric": False,
            "array": [above for above, _ in ends],
            "arrayminus": [below for _, below in ends],
            "thickness": 1.2,
            "width": 3,
        },
    }


def caption(host: Host, created: str, threads: int | None = None, precision: str | None = None) -> str:
    """Where the numbers are from: machine, threads, precision and date; nothing that names a computer."""
    machine = ", ".join([host.cpu, units.plural(host.cores, "core"), *host.gpus])
    using = None if threads is None else units.plural(threads, "thread")
    return " · ".join(filter(None, (machine, using, precision, created.partition("T")[0])))


def layout(title: str, caption: str) -> dict[str, Any]:
    """Of every figure; the caption stands below its title."""
    return {
        "title": {
            "text": title, "subtitle": {"text": caption}, "yref": "container", "y": 1, "yanchor": "top",
            "pad": {"t": 16},
        },
        "template": "plotly_white",
        "showlegend": True,
        "margin": {"t": 80, "b": 50, "l": 60, "r": 20},
    }  # fmt: skip


def plotly() -> ModuleType:
    """Its graph objects; raises BadInput where it is not installed."""
    try:
        import plotly.graph_objects as module
    except ImportError as error:
        raise BadInput("plotly is not installed; pip install 'polybench[plot]', or use rows()") from error
    found: ModuleType = module
    return found
