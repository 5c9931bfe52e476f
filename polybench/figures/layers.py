"""Time of each layer: a bar for each configuration, with its operations stacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from polybench.figures.figure import Figure, NoData, Trace, escape_text, label_margin, round_coordinate
from polybench.figures.style import style_for
from polybench.networks.layers import Operation
from polybench.render.layer_table import UNATTRIBUTED
from polybench.schema.layers import STEP, ConfigurationLayers, LayersDocument

_OPERATIONS: tuple[str, ...] = get_args(Operation)

Row = tuple[str, str]
"""Layer and configuration, as escaped text."""


def draw(document: LayersDocument) -> Figure:
    """Draw layers in network order, then the rest of the step and the unattributed time.

    Raises:
        NoData: the document contains no layer times.
    """
    timed = configurations_with_layers(document)
    layers = [*dict.fromkeys(row.layer for configuration in timed for row in configuration.rows)]
    if any(configuration.unattributed_seconds is not None for configuration in timed):
        layers.append(UNATTRIBUTED[0])
    layers.sort(key=lambda layer: (layer == STEP) + 2 * (layer == UNATTRIBUTED[0]))
    operations = [
        operation
        for operation in _OPERATIONS
        if any(row.operation == operation for configuration in timed for row in configuration.rows)
    ]
    rows = [
        (escape_text(layer), escape_text(configuration.configuration)) for layer in layers for configuration in timed
    ]
    traces = [_bars(number, operation, timed, rows) for number, operation in enumerate(operations)]
    if UNATTRIBUTED[0] in layers:
        traces.append(_unattributed_bars(len(operations), timed, rows))
    configurations = [escape_text(configuration.configuration) for configuration in timed]
    return Figure(
        title="Time of each layer",
        note=(
            "Each operation is timed in isolation. Forward includes the ReLU; activation is the gradient of the ReLU."
            " Unattributed is the whole step minus its operations; it is negative if the step overlaps or"
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
            "margin": {"l": label_margin(configurations) + label_margin(map(escape_text, layers)), "r": 24},
            "legend": {"traceorder": "normal"},
        },
        height=120 + 17 * len(rows),
    )  # fmt: skip


def configurations_with_layers(document: LayersDocument) -> list[ConfigurationLayers]:
    """Select configurations with layer times; raises NoData without any."""
    if not (timed := [configuration for configuration in document.configurations if configuration.rows]):
        reasons = "; ".join(f"{one.configuration}: {one.reason or one.status}" for one in document.configurations)
        raise NoData(f"{document.id} has no layer times: {reasons or 'nothing was measured'}")
    return timed


def _bars(number: int, operation: str, timed: Sequence[ConfigurationLayers], rows: Sequence[Row]) -> Trace:
    times = {
        (escape_text(row.layer), escape_text(configuration.configuration)): row.seconds_per_step
        for configuration in timed
        for row in configuration.rows
        if row.operation == operation
    }
    return _trace(number, operation, rows, times)


def _unattributed_bars(number: int, timed: Sequence[ConfigurationLayers], rows: Sequence[Row]) -> Trace:
    times = {
        (UNATTRIBUTED[0], escape_text(configuration.configuration)): configuration.unattributed_seconds
        for configuration in timed
        if configuration.unattributed_seconds is not None
    }
    return _trace(number, UNATTRIBUTED[0], rows, times)


def _trace(number: int, name: str, rows: Sequence[Row], times: dict[Row, float]) -> Trace:
    return {
        "type": "bar",
        "orientation": "h",
        "name": name,
        "y": [[layer for layer, _ in rows], [configuration for _, configuration in rows]],
        "x": [round_coordinate(1e3 * times[row]) if row in times else None for row in rows],
        "marker": style_for(number).bar_marker,
        "hovertemplate": f"%{{y}}, {name}: %{{x:.4~g}} ms<extra></extra>",
    }
