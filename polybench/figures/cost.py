"""Cost of an epoch over its time; the lower left is better in both."""

from __future__ import annotations

from polybench.figures.figure import (
    NEUTRAL,
    Figure,
    NoData,
    Trace,
    coordinates,
    escape_text,
    log_axis,
    round_coordinate,
    scatter,
    styles_for,
)
from polybench.schema.study import StudyDocument


def draw(study: StudyDocument) -> Figure:
    """Draw a mark for each ranked configuration, and a line for each price per hour.

    Raises:
        NoData: the study contains no prices.
    """
    priced = {
        result.configuration: (result.epoch_seconds, result.cost.dollars_per_epoch)
        for result in study.results
        if result.is_ranked and result.epoch_seconds and result.cost and result.cost.dollars_per_epoch
    }
    if not priced:
        raise NoData(f"study {study.id} has no costs; measure it with --price cpu=0.24")
    styles = styles_for(result.configuration for result in study.results)
    x_axis = log_axis([seconds for seconds, _ in priced.values()], padding=1.6)
    y_axis = log_axis([dollars for _, dollars in priced.values()], padding=1.6)
    rates = dict.fromkeys(round_coordinate(3600 * dollars / seconds) for seconds, dollars in priced.values())
    marks = [
        scatter(
            "markers",
            coordinates([seconds]),
            [dollars],
            name=escape_text(configuration),
            marker={"color": styles[configuration].colour, "symbol": styles[configuration].symbol, "size": 13},
            hovertemplate=f"{escape_text(configuration)}: %{{x:.4~g}} s, $%{{y:.4~g}}<extra></extra>",
        )
        for configuration, (seconds, dollars) in priced.items()
    ]
    return Figure(
        title="Cost and time per epoch",
        note="Lower left is better. Each line is a price per hour from the study.",
        traces=[*(_price_line(rate, x_axis["range"]) for rate in rates), *marks],
        layout={
            "xaxis": x_axis | {"title": {"text": "time per epoch, s"}},
            "yaxis": y_axis | {"title": {"text": "cost per epoch, $"}},
            "margin": {"l": 84, "r": 24},
        },
        height=430,
    )


def _price_line(rate: float, ends: list[float]) -> Trace:
    """Draw the cost over time at this price per hour."""
    seconds = [10.0 ** (ends[0] - 1), 10.0 ** (ends[1] + 1)]
    return scatter(
        "lines",
        coordinates(seconds),
        [rate * one / 3600 for one in seconds],
        name=f"${rate:,.4g}/hour",
        line={"color": NEUTRAL, "width": 1, "dash": "dot"},
        hoverinfo="skip",
    )
