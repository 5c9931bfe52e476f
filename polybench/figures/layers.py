"""Layer times as bars: by layer with operations stacked, and by operation with intervals."""

from __future__ import annotations

from typing import get_args

from polybench.figures.figure import (
    Figure,
    Interval,
    NoData,
    Trace,
    coordinates,
    error_bars,
    escape_text,
    horizontal_bars,
    label_margin,
)
from polybench.networks.layers import Operation
from polybench.render.layers import UNATTRIBUTED, Key, sort_operations
from polybench.render.table import Sort
from polybench.schema.measurements import STEP, ConfigurationLayers, LayersDocument

_OPERATIONS: tuple[str, ...] = (*get_args(Operation), UNATTRIBUTED[0])
_BAR_HEIGHT = 14
"""Height of a bar of an operation in pixels, at which labels do not overlap."""

_UNATTRIBUTED_NOTE = (
    "Unattributed is the whole step minus its operations; it is negative if the step overlaps or fuses operations."
)


def draw(document: LayersDocument) -> Figure:
    """Draw a bar for each layer and configuration, with its operations stacked, in network order.

    The rest of the step and the unattributed time come last.
    """
    timed = _timed(document)
    seconds = {
        (layer, one.configuration, operation or layer): value
        for one in timed
        for (layer, operation), (value, _) in _times(one).items()
    }
    layers = list(dict.fromkeys(layer for layer, _, _ in seconds))
    layers.sort(key=lambda layer: (layer == STEP) + 2 * (layer == UNATTRIBUTED[0]))
    operations = [one for one in _OPERATIONS if any(operation == one for _, _, operation in seconds)]
    rows = [(layer, one.configuration) for layer in layers for one in timed]
    labels = [[escape_text(layer) for layer, _ in rows], [escape_text(configuration) for _, configuration in rows]]
    traces = [
        horizontal_bars(
            operation,
            labels,
            coordinates((seconds.get((*row, operation)) for row in rows), 1e3),
            number,
            hovertemplate=f"%{{y}}, {operation}: %{{x:.4~g}} ms<extra></extra>",
        )
        for number, operation in enumerate(operations)
    ]
    return Figure(
        title="Time of each layer",
        note=(
            "Each operation is timed in isolation. Forward includes the ReLU; activation is the gradient of the ReLU."
            f" {_UNATTRIBUTED_NOTE}"
        ),
        traces=traces,
        layout={
            "barmode": "relative",
            "bargap": 0.2,
            "xaxis": {"title": {"text": "time per step, ms"}, "zeroline": True},
            "yaxis": {
                "type": "multicategory", "autorange": "reversed", "ticks": "", "showgrid": False,
                "dividercolor": "rgba(128,128,128,0.35)", "tickfont": {"size": 11},
            },
            "margin": {"l": label_margin(labels[1]) + label_margin(map(escape_text, layers)), "r": 24},
            "legend": {"traceorder": "normal"},
        },
        height=120 + 17 * len(rows),
    )  # fmt: skip


def draw_operations(document: LayersDocument, sort: Sort = "network") -> Figure:
    """Draw the operations in this order with their intervals, then the unattributed time."""
    timed = _timed(document)
    keys = sort_operations(document, sort)
    if any(configuration.unattributed_seconds is not None for configuration in timed):
        keys = [*keys, UNATTRIBUTED]
    labels = [escape_text(" · ".join(filter(None, key))) for key in keys]
    return Figure(
        title="Time of each operation",
        note=(
            f"Error bars are 95% intervals over processes, or over the rounds of a single process. {_UNATTRIBUTED_NOTE}"
        ),
        traces=[_operation_bars(one, keys, labels, number) for number, one in enumerate(timed)],
        layout={
            "barmode": "group",
            "xaxis": {"title": {"text": "time per step, ms"}, "zeroline": True},
            "yaxis": {"autorange": "reversed", "ticks": ""},
            "margin": {"l": label_margin(labels), "r": 24},
        },
        height=120 + _BAR_HEIGHT * len(keys) * (len(timed) + 1),
    )


def _timed(document: LayersDocument) -> list[ConfigurationLayers]:
    if not (timed := [configuration for configuration in document.configurations if configuration.rows]):
        reasons = "; ".join(f"{one.configuration}: {one.reason or one.status}" for one in document.configurations)
        raise NoData(f"{document.id} has no layer times: {reasons or 'nothing was measured'}")
    return timed


def _times(one: ConfigurationLayers) -> dict[Key, tuple[float, Interval | None]]:
    """Collect the seconds and the interval of each operation, and of the unattributed time if it is known."""
    times: dict[Key, tuple[float, Interval | None]] = {
        (row.layer, row.operation): (row.seconds_per_step, row.ci95) for row in one.rows
    }
    if one.unattributed_seconds is not None:
        times[UNATTRIBUTED] = one.unattributed_seconds, one.ci95
    return times


def _operation_bars(one: ConfigurationLayers, keys: list[Key], labels: list[str], number: int) -> Trace:
    """Draw the bars of a configuration; operations that it lacks have no bar."""
    times = _times(one)
    values = [times.get(key, (None, None)) for key in keys]
    return horizontal_bars(
        one.configuration,
        labels,
        coordinates((seconds for seconds, _ in values), 1e3),
        number,
        error_x=error_bars([seconds or 0.0 for seconds, _ in values], [interval for _, interval in values], 1e3),
        hovertemplate=f"%{{y}}, {escape_text(one.configuration)}: %{{x:.4~g}} ms<extra></extra>",
    )
