"""Speed relative to the baseline, with its interval: a row for each cell, the fastest first."""

from __future__ import annotations

from polybench.core import units
from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.core.document.times import Relative
from polybench.plots.plot import NothingToDraw, Plot, Trace, error_bars, left_margin, log_axis, rounded, text
from polybench.plots.style import NEUTRAL, looks


def draw(study: StudyDocument) -> Plot:
    """A mark for each ranked cell, filled where there is a verdict.

    Raises:
        NothingToDraw: fewer than two cells may be compared.
    """
    rows = [(result, result.relative) for result in study.results if result.ranked and result.relative]
    if len(rows) < 2:
        raise NothingToDraw(
            f"study {study.id} has no two rows that may be compared; measure them together:"
            " polybench compare --engines torch,tf"
        )
    styles = looks(result.cell for result in study.results)
    rows.sort(key=lambda row: -row[1].speedup)
    bounds = [bound for _, one in rows for bound in (one.speedup, *(one.interval95 or ()))]
    axis = log_axis([*bounds, 1.0], room=1.25)
    axis["title"] = {"text": f"speed relative to {text(rows[0][1].baseline)}"}
    within = any(one.scope == "within one run" for _, one in rows)
    where = "within one run" if within else "over fresh processes"
    note = (
        f"Above 1 is faster. Bars are 95% intervals {where}; hollow marks are no verdict: the baseline"
        " itself, an interval with 1 in it, one process only, or a disturbed machine."
    )
    unranked = [result.cell for result in study.results if result.measured and not result.ranked]
    if unranked:
        note += f" Not ranked, since it did not do the same arithmetic: {', '.join(unranked)}."
    return Plot(
        title="Speed relative to the baseline",
        note=note,
        traces=[_mark(result, one, styles[result.cell].colour) for result, one in rows],
        layout={
            "xaxis": axis,
            "yaxis": {"autorange": "reversed", "type": "category", "showgrid": False, "ticks": ""},
            "showlegend": False,
            "margin": {"l": left_margin(result.cell for result, _ in rows), "r": 150},
            "shapes": [
                {
                    "type": "line", "x0": 1, "x1": 1, "y0": 0, "y1": 1, "yref": "paper", "layer": "between",
                    "line": {"color": NEUTRAL, "width": 1.5, "dash": "dash"},
                }
            ],
            "annotations": [
                {
                    "x": 1, "xref": "paper", "xanchor": "left", "xshift": 8, "y": number, "showarrow": False,
                    "text": _words(result, one),
                }
                for number, (result, one) in enumerate(rows)
            ],
        },
        height=90 + 34 * len(rows),
    )  # fmt: skip


def _mark(result: Result, one: Relative, colour: str) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": text(result.cell),
        "x": [rounded(one.speedup)],
        "y": [text(result.cell)],
        "error_x": error_bars([one.speedup], [one.interval95]) | {"color": colour},
        "marker": {
            "color": colour,
            "size": 11,
            "symbol": "circle" if _verdict(one) else "circle-open",
            "line": {"width": 2, "color": colour},
        },
        "hovertemplate": f"{text(result.cell)}: {_words(result, one)}<extra></extra>",
    }


def _verdict(one: Relative) -> bool:
    if one.interval95 is None or one.scope != "processes" or one.no_verdict is not None:
        return False
    return not one.interval95[0] <= 1 <= one.interval95[1]


def _words(result: Result, one: Relative) -> str:
    return "baseline" if one.baseline == result.cell else units.with_interval(one.speedup, one.interval95)
