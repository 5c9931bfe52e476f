"""Speed relative to the baseline, with intervals: a row per configuration, the fastest first."""

from __future__ import annotations

from polybench.figures.figure import (
    HOLLOW,
    NEUTRAL,
    Figure,
    NoData,
    Trace,
    engine_colour,
    error_bars,
    escape_text,
    label_margin,
    log_axis,
    scatter,
)
from polybench.schema import units
from polybench.schema.result import SINGLE_PROCESS, Comparison, Result
from polybench.schema.study import StudyDocument


def draw(study: StudyDocument) -> Figure:
    """Draw a mark for each ranked configuration, hollow if the comparison is inconclusive."""
    rows = [(result, result.vs_baseline) for result in study.results if result.is_ranked and result.vs_baseline]
    if len(rows) < 2:
        raise NoData(
            f"study {study.id} has no two configurations to compare; measure them in one study:"
            " polybench compare --engines torch,tf"
        )
    rows.sort(key=lambda row: -row[1].speedup)
    values = [value for _, comparison in rows for value in (comparison.speedup, *(comparison.ci95 or ()))]
    axis = log_axis([*values, 1.0], padding=1.25)
    axis["title"] = {"text": f"speed relative to {escape_text(rows[0][1].baseline)}"}
    single = any(comparison.scope == "single_process" for _, comparison in rows)
    scope = "within a single process" if single else "over processes"
    note = f"Above 1 is faster. Error bars are 95% intervals {scope}."
    if any(map(_is_hollow, rows)):
        note += f" {HOLLOW}"
    unranked = [result.configuration for result in study.results if result.is_measured and not result.is_ranked]
    if unranked:
        note += f" Not ranked, because of a failed parity check: {', '.join(unranked)}."
    return Figure(
        title="Speed relative to the baseline",
        note=note,
        traces=list(map(_mark, rows)),
        layout={
            "xaxis": axis,
            "yaxis": {"autorange": "reversed", "type": "category", "showgrid": False, "ticks": ""},
            "showlegend": False,
            "margin": {"l": label_margin(result.configuration for result, _ in rows), "r": 150},
            "shapes": [
                {
                    "type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "paper", "layer": "between",
                    "line": {"color": NEUTRAL, "width": 1.5, "dash": "dash"},
                }
            ],
            "annotations": [
                {
                    "x": 1, "xref": "paper", "xanchor": "left", "xshift": 8, "showarrow": False,
                    "y": escape_text(row[0].configuration), "name": escape_text(row[0].configuration),
                    "text": _label(row),
                }
                for row in rows
            ],
        },
        height=90 + 34 * len(rows),
    )  # fmt: skip


_Row = tuple[Result, Comparison]


def _is_hollow(row: _Row) -> bool:
    result, comparison = row
    return comparison.is_inconclusive and comparison.baseline != result.configuration


def _mark(row: _Row) -> Trace:
    result, comparison = row
    name, colour = result.configuration, engine_colour(result.configuration)
    relation = "" if name == comparison.baseline else f" times as fast as {comparison.baseline}"
    reason = f": {comparison.inconclusive_reason or SINGLE_PROCESS}" if _is_hollow(row) else relation
    return scatter(
        "markers",
        [comparison.speedup],
        [escape_text(name)],
        configuration=name,
        tooltips=[f"{name}: {_label(row)}{reason}"],
        error_x=error_bars([comparison.speedup], [comparison.ci95]) | {"color": colour},
        marker={
            "color": colour, "size": 11, "symbol": "circle-open" if _is_hollow(row) else "circle",
            "line": {"width": 2, "color": colour},
        },
    )  # fmt: skip


def _label(row: _Row) -> str:
    result, comparison = row
    if comparison.baseline == result.configuration:
        return "baseline"
    return "cannot tell" if _is_hollow(row) else units.format_with_ci(comparison.speedup, comparison.ci95)
