"""Speed relative to the baseline, with intervals: a row per configuration, the fastest first."""

from __future__ import annotations

from polybench.figures.figure import (
    NEUTRAL,
    Figure,
    NoData,
    Trace,
    error_bars,
    escape_text,
    label_margin,
    log_axis,
    scatter,
    styles_for,
)
from polybench.schema import units
from polybench.schema.result import Comparison, Result
from polybench.schema.study import StudyDocument


def draw(study: StudyDocument) -> Figure:
    """Draw a mark for each ranked configuration, filled if the difference is significant."""
    rows = [(result, result.vs_baseline) for result in study.results if result.is_ranked and result.vs_baseline]
    if len(rows) < 2:
        raise NoData(
            f"study {study.id} has no two configurations to compare; measure them in one study:"
            " polybench compare --engines torch,tf"
        )
    styles = styles_for(result.configuration for result in study.results)
    rows.sort(key=lambda row: -row[1].speedup)
    values = [value for _, comparison in rows for value in (comparison.speedup, *(comparison.ci95 or ()))]
    axis = log_axis([*values, 1.0], padding=1.25)
    axis["title"] = {"text": f"speed relative to {escape_text(rows[0][1].baseline)}"}
    single = any(comparison.scope == "single_process" for _, comparison in rows)
    scope = "within a single process" if single else "over processes"
    note = (
        f"Above 1 is faster. Error bars are 95% intervals {scope}. Hollow marks are not proven to differ"
        " from the baseline."
    )
    unranked = [result.configuration for result in study.results if result.is_measured and not result.is_ranked]
    if unranked:
        note += f" Not ranked, because of a failed parity check: {', '.join(unranked)}."
    return Figure(
        title="Speed relative to the baseline",
        note=note,
        traces=[_mark(result, one, styles[result.configuration].colour) for result, one in rows],
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
                    "x": 1, "xref": "paper", "xanchor": "left", "xshift": 8, "y": number, "showarrow": False,
                    "text": _label(result, comparison),
                }
                for number, (result, comparison) in enumerate(rows)
            ],
        },
        height=90 + 34 * len(rows),
    )  # fmt: skip


def _mark(result: Result, comparison: Comparison, colour: str) -> Trace:
    name = escape_text(result.configuration)
    return scatter(
        "markers",
        [comparison.speedup],
        [name],
        name=result.configuration,
        error_x=error_bars([comparison.speedup], [comparison.ci95]) | {"color": colour},
        marker={
            "color": colour, "size": 11, "symbol": "circle" if comparison.is_significant else "circle-open",
            "line": {"width": 2, "color": colour},
        },
        hovertemplate=f"{name}: {_label(result, comparison)}<extra></extra>",
    )  # fmt: skip


def _label(result: Result, comparison: Comparison) -> str:
    if comparison.baseline == result.configuration:
        return "baseline"
    return "inconclusive" if comparison.is_inconclusive else units.format_with_ci(comparison.speedup, comparison.ci95)
