"""Each part of each layer, with its interval: a group of bars for a part, a bar for each cell."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.core.document.layers import EngineLayers, LayersDocument
from polybench.export.layers_rows import RESIDUE, Key, Sort, ordered
from polybench.plots.layers import timed_layers
from polybench.plots.plot import Interval, Plot, Trace, error_bars, left_margin, rounded, text
from polybench.plots.style import Look, look

_BAR_PIXELS = 14
"""Height of a bar, so that labels of parts never overlap."""


def draw(document: LayersDocument, sort: Sort = "network") -> Plot:
    """The parts in this order, as the table has them, and below them the residue where it is known.

    Raises:
        NothingToDraw: no layer has a time.
    """
    engines = timed_layers(document)
    keys = ordered(document, sort)
    if any(engine.residue_seconds is not None for engine in engines):
        keys = [*keys, RESIDUE]
    labels = [text(" · ".join(filter(None, key))) for key in keys]
    return Plot(
        title="Each part of a step",
        note=(
            "Bars are 95% intervals over processes, of one process over rounds. The residue is a whole"
            " step less its parts, below 0 where parts are fused or run side by side."
        ),
        traces=[_bars(engine, keys, labels, look(number)) for number, engine in enumerate(engines)],
        layout={
            "barmode": "group",
            "xaxis": {"title": {"text": "ms a step"}, "zeroline": True},
            "yaxis": {"autorange": "reversed", "ticks": ""},
            "margin": {"l": left_margin(labels), "r": 24},
        },
        height=120 + _BAR_PIXELS * len(keys) * (len(engines) + 1),
    )


def _bars(engine: EngineLayers, keys: Sequence[Key], labels: Sequence[str], style: Look) -> Trace:
    """None where the engine has no such part."""
    times: dict[Key, tuple[float | None, Interval | None]] = {
        (row.layer, row.part): (row.seconds_per_step, row.interval95) for row in engine.rows
    }
    times[RESIDUE] = engine.residue_seconds, engine.interval95
    found = [times.get(key, (None, None)) for key in keys]
    return {
        "type": "bar",
        "orientation": "h",
        "name": text(engine.cell),
        "y": list(labels),
        "x": [None if seconds is None else rounded(1e3 * seconds) for seconds, _ in found],
        "error_x": error_bars(
            [1e3 * (seconds or 0.0) for seconds, _ in found],
            [interval and (1e3 * interval[0], 1e3 * interval[1]) for _, interval in found],
        ),
        "marker": style.filled,
        "hovertemplate": f"%{{y}}, {text(engine.cell)}: %{{x:.4~g}} ms<extra></extra>",
    }
