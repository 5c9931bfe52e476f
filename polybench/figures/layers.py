"""Layer times as bars, with operations stacked."""

from __future__ import annotations

from typing import get_args

from polybench.figures.figure import (
    OPERATIONS,
    Figure,
    NoData,
    bar_style,
    coordinates,
    escape_text,
    horizontal_bars,
    label_margin,
)
from polybench.networks.layers import Operation
from polybench.schema import units
from polybench.schema.measurements import STEP, ConfigurationLayers, LayersDocument

_BETWEEN = "between the layers"
_OPERATIONS: tuple[str, ...] = (*get_args(Operation), _BETWEEN)


def draw(document: LayersDocument) -> Figure:
    """Draw a bar for each layer and configuration, with its operations stacked, in network order.

    The rest of the step and the time between the layers come last.
    """
    timed = _timed(document)
    seconds: dict[tuple[str, str, str], float] = {
        (row.layer, one.configuration, row.operation): row.seconds_per_step for one in timed for row in one.rows
    }
    seconds |= {
        (_BETWEEN, one.configuration, _BETWEEN): one.unattributed_seconds
        for one in timed
        if one.unattributed_seconds is not None
    }
    layers = list(dict.fromkeys(layer for layer, _, _ in seconds))
    layers.sort(key=lambda layer: (layer == STEP) + 2 * (layer == _BETWEEN))
    timed_operations = {operation for _, _, operation in seconds}
    rows = [(layer, one.configuration) for layer in layers for one in timed]
    labels = [[escape_text(layer) for layer, _ in rows], [escape_text(configuration) for _, configuration in rows]]
    traces = [
        horizontal_bars(
            operation,
            labels,
            coordinates((seconds.get((*row, operation)) for row in rows), 1e3),
            configurations=[configuration for _, configuration in rows],
            tooltips=[
                "" if (time := seconds.get((*row, operation))) is None else _describe(*row, operation, time)
                for row in rows
            ],
            style=bar_style(OPERATIONS, number),
        )
        for number, operation in enumerate(_OPERATIONS)
        if operation in timed_operations
    ]
    return Figure(
        title="Time of each layer",
        note=(
            "Each operation is timed in isolation. Forward includes the ReLU."
            " Between the layers is the whole step minus its operations; it is negative if the step overlaps or"
            " fuses operations."
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


def _describe(layer: str, configuration: str, operation: str, seconds: float) -> str:
    name = layer if layer == operation else f"{layer}, {operation}"
    return f"{configuration}, {name}: {units.format_seconds(seconds)}"


def _timed(document: LayersDocument) -> list[ConfigurationLayers]:
    if not (timed := [configuration for configuration in document.configurations if configuration.rows]):
        reasons = "; ".join(f"{one.configuration}: {one.reason or one.status}" for one in document.configurations)
        raise NoData(f"{document.id} has no layer times: {reasons or 'nothing was measured'}")
    return timed
