"""Allocations per training step: by the common native counter, and by each engine's own counter."""

from __future__ import annotations

from collections.abc import Callable

from polybench.figures.figure import Figure, NoData, Trace, escape_text, label_margin, round_coordinate
from polybench.figures.style import style_for
from polybench.schema import units
from polybench.schema.resources import Allocations
from polybench.schema.study import StudyDocument

_MIB = 2.0**20

Count = tuple[float | None, float | None] | None
"""Bytes and allocations per step; None without a source."""


def _native(one: Allocations) -> Count:
    return (one.native.bytes_per_step, one.native.count_per_step) if one.native else None


def _host(one: Allocations) -> Count:
    return (one.host.bytes_per_step, one.host.count_per_step) if one.host else None


def _device(one: Allocations) -> Count:
    return (one.device.bytes_per_step, one.device.count_per_step) if one.device else None


_KINDS: tuple[tuple[str, Callable[[Allocations], Count]], ...] = (
    ("native, same counter in all engines", _native),
    ("host, engine's own counter", _host),
    ("device, engine's own counter", _device),
)


def draw(study: StudyDocument) -> Figure:
    """Draw a bar for each counter and each configuration.

    Raises:
        NoData: the study contains no allocations.
    """
    measured = [
        result
        for result in study.results
        if any((value := count(result.allocations)) and value[0] is not None for _, count in _KINDS)
    ]
    if not measured:
        raise NoData(f"study {study.id} has no allocations; measure it without --no-metrics")
    names = [escape_text(result.configuration) for result in measured]
    traces = [
        _bars(number, title, names, [count(result.allocations) for result in measured])
        for number, (title, count) in enumerate(_KINDS)
    ]
    traces = [trace for trace in traces if any(value is not None for value in trace["x"])]
    longest = max(value for trace in traces for value in trace["x"] if value is not None)
    return Figure(
        title="Allocations per training step",
        note=(
            "Numbers beside bars count allocations. Engines' own counters differ in coverage, so only"
            " native allocations can be compared between engines."
        ),
        traces=traces,
        layout={
            "barmode": "group",
            "xaxis": {
                "title": {"text": "MiB per step"},
                "range": [0, 1.14 * longest],
            },  # space for the counts
            "showlegend": True,
            "yaxis": {"type": "category", "autorange": "reversed", "ticks": "", "showgrid": False},
            "margin": {"l": label_margin(names), "r": 24},
            "legend": {"traceorder": "normal"},
        },
        height=120 + (22 * len(traces) + 16) * len(names),
    )


def _bars(number: int, title: str, names: list[str], values: list[Count]) -> Trace:
    mib = [None if one is None or one[0] is None else round_coordinate(one[0] / _MIB) for one in values]
    counts = ["" if one is None or one[1] is None else units.format_count(one[1]) for one in values]
    return {
        "type": "bar",
        "orientation": "h",
        "name": title,
        "y": names,
        "x": mib,
        "text": counts,
        "textposition": "outside",
        "cliponaxis": False,
        "marker": style_for(number).bar_marker,
        "hovertemplate": "%{y}: %{x:.4~g} MiB, %{text} allocations<extra></extra>",
    }
