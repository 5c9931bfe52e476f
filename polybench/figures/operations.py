"""Time of each operation, with intervals: a group of bars per operation, a bar per configuration."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.figures.figure import (
    Figure,
    Interval,
    Trace,
    error_bars,
    escape_text,
    label_margin,
    round_coordinate,
)
from polybench.figures.layers import configurations_with_layers
from polybench.figures.style import TraceStyle, style_for
from polybench.render.layer_table import UNATTRIBUTED, Key, Sort, sort_operations
from polybench.schema.layers import ConfigurationLayers, LayersDocument

_BAR_HEIGHT = 14
"""Height of a bar in pixels, at which labels do not overlap."""


def draw(document: LayersDocument, sort: Sort = "network") -> Figure:
    """Draw the operations in this order, then the unattributed time.

    Raises:
        NoData: the document contains no layer times.
    """
    timed = configurations_with_layers(document)
    keys = sort_operations(document, sort)
    if any(configuration.unattributed_seconds is not None for configuration in timed):
        keys = [*keys, UNATTRIBUTED]
    labels = [escape_text(" · ".join(filter(None, key))) for key in keys]
    return Figure(
        title="Time of each operation",
        note=(
            "Error bars are 95% intervals over processes, or over the rounds of a single process."
            " Unattributed is the whole step minus its operations; it is negative if the step overlaps or"
            " fuses operations."
        ),
        traces=[_bars(configuration, keys, labels, style_for(number)) for number, configuration in enumerate(timed)],
        layout={
            "barmode": "group",
            "xaxis": {"title": {"text": "time per step, ms"}, "zeroline": True},
            "yaxis": {"autorange": "reversed", "ticks": ""},
            "margin": {"l": label_margin(labels), "r": 24},
        },
        height=120 + _BAR_HEIGHT * len(keys) * (len(timed) + 1),
    )


def _bars(configuration: ConfigurationLayers, keys: Sequence[Key], labels: Sequence[str], style: TraceStyle) -> Trace:
    """Draw the bars of a configuration; operations that it lacks have no bar."""
    times: dict[Key, tuple[float | None, Interval | None]] = {
        (row.layer, row.operation): (row.seconds_per_step, row.ci95) for row in configuration.rows
    }
    times[UNATTRIBUTED] = configuration.unattributed_seconds, configuration.ci95
    values = [times.get(key, (None, None)) for key in keys]
    return {
        "type": "bar",
        "orientation": "h",
        "name": escape_text(configuration.configuration),
        "y": list(labels),
        "x": [None if seconds is None else round_coordinate(1e3 * seconds) for seconds, _ in values],
        "error_x": error_bars(
            [1e3 * (seconds or 0.0) for seconds, _ in values],
            [interval and (1e3 * interval[0], 1e3 * interval[1]) for _, interval in values],
        ),
        "marker": style.bar_marker,
        "hovertemplate": f"%{{y}}, {escape_text(configuration.configuration)}: %{{x:.4~g}} ms<extra></extra>",
    }
