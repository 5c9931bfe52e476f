"""What an epoch costs against how long it takes: who is further to the lower left wins on both."""

from __future__ import annotations

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument
from polybench.plots.plot import NothingToDraw, Plot, Trace, log_axis, rounded, text
from polybench.plots.style import NEUTRAL, Look, looks


def draw(study: StudyDocument) -> Plot:
    """A mark for each ranked cell, and a line for each price of an hour.

    Raises:
        NothingToDraw: no prices were given.
    """
    priced = [
        (result, result.epoch_seconds, result.cost.dollars_per_epoch)
        for result in study.results
        if result.ranked and result.epoch_seconds and result.cost and result.cost.dollars_per_epoch
    ]
    if not priced:
        raise NothingToDraw(f"study {study.id} has no costs; measure it with a price: --price cpu=0.24")
    styles = looks(result.cell for result in study.results)
    across = log_axis([seconds for _, seconds, _ in priced], room=1.6)
    up = log_axis([dollars for *_, dollars in priced], room=1.6)
    rates = dict.fromkeys(rounded(3600 * dollars / seconds) for _, seconds, dollars in priced)
    return Plot(
        title="Cost of an epoch against its time",
        note=(
            "Lower left is better on both. A line is one price of an hour; prices are those that"
            " the study names."
        ),
        traces=[
            *(_price(rate, across["range"]) for rate in rates),
            *(_mark(*row, styles[row[0].cell]) for row in priced),
        ],
        layout={
            "xaxis": across | {"title": {"text": "s an epoch"}},
            "yaxis": up | {"title": {"text": "$ an epoch"}},
            "margin": {"l": 84, "r": 24},
        },
        height=430,
    )


def _mark(result: Result, seconds: float, dollars: float, style: Look) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": text(result.cell),
        "x": [rounded(seconds)],
        "y": [rounded(dollars)],
        "marker": {"color": style.colour, "symbol": style.symbol, "size": 13},
        "hovertemplate": f"{text(result.cell)}: %{{x:.4~g}} s, $%{{y:.4~g}}<extra></extra>",
    }


def _price(rate: float, ends: list[float]) -> Trace:
    """Every time and its cost at this price of an hour."""
    seconds = [10.0 ** (ends[0] - 1), 10.0 ** (ends[1] + 1)]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"${rate:,.4g} an hour",
        "x": [rounded(one) for one in seconds],
        "y": [rounded(rate * one / 3600) for one in seconds],
        "line": {"color": NEUTRAL, "width": 1, "dash": "dot"},
        "hoverinfo": "skip",
    }
