"""What a training step allocates: counted alike in all engines, and as each tells of itself."""

from __future__ import annotations

from collections.abc import Callable

from polybench.core import units
from polybench.core.document.resources import Allocations
from polybench.core.document.study import StudyDocument
from polybench.plots.plot import NothingToDraw, Plot, Trace, left_margin, rounded, text
from polybench.plots.style import look

_MIB = 2.0**20

Counted = tuple[float | None, float | None] | None
"""Bytes and requests of a step; None where there is no source."""


def _native(one: Allocations) -> Counted:
    return (one.native.bytes_per_step, one.native.count_per_step) if one.native else None


def _host(one: Allocations) -> Counted:
    return (one.host.bytes_per_step, one.host.count_per_step) if one.host else None


def _device(one: Allocations) -> Counted:
    return (one.device.bytes_per_step, one.device.count_per_step) if one.device else None


_KINDS: tuple[tuple[str, Callable[[Allocations], Counted]], ...] = (
    ("asked of the C library and the kernel (may be divided)", _native),
    ("by the engine's own count (side by side only)", _host),
    ("on the device, by the engine's own count", _device),
)


def draw(study: StudyDocument) -> Plot:
    """A bar for each way of counting and each cell.

    Raises:
        NothingToDraw: nothing was counted.
    """
    counted = [
        result
        for result in study.results
        if any((found := count(result.allocations)) and found[0] is not None for _, count in _KINDS)
    ]
    if not counted:
        raise NothingToDraw(f"study {study.id} has no allocations; measure it without --no-metrics")
    names = [text(result.cell) for result in counted]
    traces = [
        _bars(number, title, names, [count(result.allocations) for result in counted])
        for number, (title, count) in enumerate(_KINDS)
    ]
    traces = [trace for trace in traces if any(value is not None for value in trace["x"])]
    longest = max(value for trace in traces for value in trace["x"] if value is not None)
    return Plot(
        title="Allocations of a training step",
        note=(
            "Behind each bar: how many requests. Engines see different things of themselves, so"
            " only bars that are"
            " counted alike may be divided."
        ),
        traces=traces,
        layout={
            "barmode": "group",
            "xaxis": {"title": {"text": "MiB a step"}, "range": [0, 1.14 * longest]},  # room for the counts
            "showlegend": True,
            "yaxis": {"type": "category", "autorange": "reversed", "ticks": "", "showgrid": False},
            "margin": {"l": left_margin(names), "r": 24},
            "legend": {"traceorder": "normal"},
        },
        height=120 + (22 * len(traces) + 16) * len(names),
    )


def _bars(number: int, title: str, names: list[str], found: list[Counted]) -> Trace:
    mib = [None if one is None or one[0] is None else rounded(one[0] / _MIB) for one in found]
    counts = ["" if one is None or one[1] is None else units.count(one[1]) for one in found]
    return {
        "type": "bar",
        "orientation": "h",
        "name": title,
        "y": names,
        "x": mib,
        "text": counts,
        "textposition": "outside",
        "cliponaxis": False,
        "marker": look(number).filled,
        "hovertemplate": "%{y}: %{x:.4~g} MiB, %{text} requests<extra></extra>",
    }
