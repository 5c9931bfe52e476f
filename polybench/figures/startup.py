"""Cold start by phase."""

from __future__ import annotations

from polybench.figures.figure import (
    PHASES,
    Figure,
    NoData,
    bar_style,
    coordinates,
    escape_text,
    horizontal_bars,
    label_margin,
)
from polybench.schema.metrics import METRICS
from polybench.schema.study import StudyDocument

_PHASES = [
    METRICS[name] for name in ("process_start_time", "import_time", "build_time", "data_to_device_time", "first_step")
]
"""Phases of the cold start."""


def draw(study: StudyDocument) -> Figure:
    """Draw a bar for each configuration with its phases stacked."""
    started = [result for result in study.results if result.startup]
    if not started:
        raise NoData(f"study {study.id} has no start times; measure some with polybench compare")
    names = [escape_text(result.configuration) for result in started]
    return Figure(
        title="Cold start",
        note="From process start to the end of the first step; medians over processes.",
        traces=[
            horizontal_bars(
                phase.title,
                names,
                coordinates(phase.value(result) or 0.0 for result in started),
                configurations=[result.configuration for result in started],
                tooltips=[f"{result.configuration}, {phase.title}: {phase.text(result)}" for result in started],
                style=bar_style(PHASES, number),
            )
            for number, phase in enumerate(_PHASES)
        ],
        layout={
            "barmode": "stack",
            "xaxis": {"title": {"text": "cold start, s"}, "rangemode": "tozero"},
            "yaxis": {"type": "category", "autorange": "reversed", "ticks": "", "showgrid": False},
            "margin": {"l": label_margin(names), "r": 24},
            "legend": {"traceorder": "normal"},
        },
        height=120 + 30 * len(started),
        numbers=[
            f"{result.configuration}: {METRICS['cold_start'].text(result)}: "
            + ", ".join(f"{phase.title} {phase.text(result)}" for phase in _PHASES)
            for result in started
        ],
    )
