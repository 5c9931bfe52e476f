"""Cost of an epoch over its time; the lower left is better in both."""

from __future__ import annotations

from polybench.figures.figure import HOLLOW, NEUTRAL, Figure, NoData, log_axis, round_coordinate, scatter, styles_for
from polybench.schema import units
from polybench.schema.study import StudyDocument


def draw(study: StudyDocument) -> Figure:
    """Draw a mark for each ranked configuration, and a line for each price per hour."""
    priced = {
        result.configuration: (result.epoch_seconds, result.cost.dollars_per_epoch)
        for result in study.results
        if result.is_ranked and result.epoch_seconds and result.cost and result.cost.dollars_per_epoch
    }
    if not priced:
        raise NoData(f"study {study.id} has no costs; add --price cpu=0.24")
    styles = styles_for(result.configuration for result in study.results)
    x_axis = log_axis([seconds for seconds, _ in priced.values()], padding=1.6)
    y_axis = log_axis([dollars for _, dollars in priced.values()], padding=1.6)
    hollow = {result.configuration: bool(result.cost and result.cost.inconclusive_reason) for result in study.results}
    ends = [10.0 ** (x_axis["range"][0] - 1), 10.0 ** (x_axis["range"][1] + 1)]
    price_line = {"color": NEUTRAL, "width": 1, "dash": "dot"}
    rates = dict.fromkeys(round_coordinate(3600 * dollars / seconds) for seconds, dollars in priced.values())
    prices = [
        scatter("lines", ends, ends, scale=rate / 3600, name=f"${rate:,.4g}/hour", line=price_line) for rate in rates
    ]
    marks = [
        scatter(
            "markers",
            [seconds],
            [dollars],
            configuration=name,
            tooltips=[f"{name}: ${units.format_number(dollars)} and {units.format_seconds(seconds)} per epoch"],
            marker=styles[name].marker(13, hollow=[hollow[name]]),
        )
        for name, (seconds, dollars) in priced.items()
    ]
    return Figure(
        title="Cost and time per epoch",
        note="Lower left is better. Each line is a price per hour." + (f" {HOLLOW}" if any(hollow.values()) else ""),
        traces=[*prices, *marks],
        layout={
            "xaxis": x_axis | {"title": {"text": "time per epoch, s"}},
            "yaxis": y_axis | {"title": {"text": "cost per epoch, $"}},
            "margin": {"l": 84, "r": 24},
        },
        height=430,
    )
