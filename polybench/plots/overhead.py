"""What a step costs whatever its batch: step times over batch sizes, and the line fitted to them."""

from __future__ import annotations

from polybench.core.document.overhead import EngineOverhead, OverheadDocument
from polybench.plots.plot import Interval, NothingToDraw, Plot, Trace, error_bars, rounded, text
from polybench.plots.style import Look, look


def draw(document: OverheadDocument) -> Plot:
    """Points and lines of all cells; where a line meets 0 stands the fixed cost.

    Raises:
        NothingToDraw: no cell has a time.
    """
    engines = [engine for engine in document.engines if engine.points]
    if not engines:
        why = "; ".join(f"{one.cell}: {one.reason or one.status}" for one in document.engines)
        raise NothingToDraw(f"the overhead has no times: {why or 'nothing was measured'}")
    largest = max(point.batch_size for engine in engines for point in engine.points)
    return Plot(
        title="Fixed cost of a step, and cost of a sample",
        note=(
            "Lines are fitted to the marks; at 0 stands what a step takes whatever its batch (hollow). Bars"
            " are 95% intervals over processes, of one process over rounds."
        ),
        traces=[trace for n, engine in enumerate(engines) for trace in _traces(engine, look(n))],
        layout={
            # The fixed costs stand clear of the axis.
            "xaxis": {"title": {"text": "batch size"}, "range": [-0.03 * largest, 1.04 * largest]},
            "yaxis": {"title": {"text": "ms a step"}, "rangemode": "tozero"},
        },
        height=430,
    )


def _traces(engine: EngineOverhead, style: Look) -> list[Trace]:
    """What was measured and, where a line could be fitted, the line and its beginning."""
    marker = {"color": style.colour, "symbol": style.symbol, "size": 9}
    times = [(point.seconds_per_step, point.interval95) for point in engine.points]
    sizes = [point.batch_size for point in engine.points]
    measured = _marks(engine, sizes, times) | {"marker": marker, "name": text(engine.cell)}
    if engine.fixed_seconds is None or engine.seconds_per_sample is None:
        return [measured]
    ends = [0, max(sizes)]
    fitted = [1e3 * (engine.fixed_seconds + engine.seconds_per_sample * size) for size in ends]
    line = {
        "type": "scatter", "mode": "lines", "x": ends, "y": [rounded(value) for value in fitted],
        "line": {"color": style.colour, "dash": style.dash, "width": 1.5},
        "legendgroup": text(engine.cell), "showlegend": False, "hoverinfo": "skip",
    }  # fmt: skip
    hollow = marker | {"symbol": f"{style.symbol}-open", "size": 11, "line": {"width": 2}}
    fixed = _marks(engine, [0], [(engine.fixed_seconds, engine.intervals.fixed_seconds)])
    return [measured, line, fixed | {"marker": hollow, "showlegend": False}]


def _marks(engine: EngineOverhead, sizes: list[int], times: list[tuple[float, Interval | None]]) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "legendgroup": text(engine.cell),
        "cliponaxis": False,
        "x": sizes,
        "y": [rounded(1e3 * seconds) for seconds, _ in times],
        "error_y": error_bars(
            [1e3 * seconds for seconds, _ in times],
            [interval and (1e3 * interval[0], 1e3 * interval[1]) for _, interval in times],
        ),
        "hovertemplate": f"{text(engine.cell)}, batch %{{x}}: %{{y:.4~g}} ms<extra></extra>",
    }
