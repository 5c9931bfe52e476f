"""Allocations per step: by the common native counter, and by each engine's own counter."""

from __future__ import annotations

from operator import attrgetter

from polybench.figures.figure import (
    SOURCES,
    Figure,
    NoData,
    bar_style,
    coordinates,
    escape_text,
    horizontal_bars,
    label_margin,
)
from polybench.schema import units
from polybench.schema.resources import Allocation, NativeAllocation
from polybench.schema.study import StudyDocument

_MIB = 2.0**20
_KINDS = {
    "native": "native, same counter in all engines",
    "host": "host, engine's own counter",
    "device": "device, engine's own counter",
}
"""Fields of `Allocations`, and the titles of their bars."""


def draw(study: StudyDocument) -> Figure:
    """Draw a bar for each counter and each configuration."""
    bytes_of = attrgetter("bytes_per_step")
    counted = {
        result.configuration: {kind: one for kind in _KINDS if (one := getattr(result.allocations, kind))}
        for result in study.results
    }
    measured = {
        configuration: kinds
        for configuration, kinds in counted.items()
        if any(bytes_of(one) is not None for one in kinds.values())
    }
    if not measured:
        raise NoData(f"study {study.id} has no allocations; measure it without --no-metrics")
    names = list(map(escape_text, measured))
    traces = []
    for number, (kind, title) in enumerate(_KINDS.items()):
        found = [kinds.get(kind) for kinds in measured.values()]
        sizes = [one and bytes_of(one) for one in found]
        if any(size is not None for size in sizes):
            bars = horizontal_bars(
                title,
                names,
                coordinates(sizes, 1 / _MIB),
                configurations=measured,
                tooltips=[
                    "" if one is None else f"{name}, {kind}: {_describe(one)}"
                    for name, one in zip(measured, found, strict=True)
                ],
                style=bar_style(SOURCES, number),
                text=["" if size is None else units.format_bytes(size) for size in sizes],
                textposition="outside",
                cliponaxis=False,
            )
            traces.append(bars)
    longest = max(value for trace in traces for value in trace["x"] if value is not None)
    return Figure(
        title="Allocations per step",
        note=("Engines' own counters differ in coverage, so only native allocations can be compared between engines."),
        traces=traces,
        layout={
            "barmode": "group",
            "xaxis": {"title": {"text": "MiB per step"}, "range": [0, 1.14 * longest]},  # space for the sizes
            "showlegend": True,
            "yaxis": {"type": "category", "autorange": "reversed", "ticks": "", "showgrid": False},
            "margin": {"l": label_margin(names), "r": 24},
            "legend": {"traceorder": "normal"},
        },
        height=120 + (22 * len(traces) + 16) * len(names),
    )


def _describe(one: Allocation | NativeAllocation) -> str:
    parts = [] if one.bytes_per_step is None else [units.format_bytes(one.bytes_per_step)]
    if one.count_per_step is not None:
        parts.append(f"{units.format_count(one.count_per_step)} allocations")
    return " in ".join(parts)
