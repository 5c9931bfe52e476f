"""Each cell over time as text: one line a study, a line of dots beside it, and the steps below."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from polybench.core import units
from polybench.core.document.diff import Changed
from polybench.core.document.history import HistoryDocument, Point, Series, Step
from polybench.core.document.study import json_of
from polybench.export.one_line import one_line
from polybench.export.records import laid_out, wrapped

_WIDTH = 24
"""Characters of the line of dots, from the shortest step to the longest."""


def render(document: HistoryDocument, format: str) -> str:
    """Text that ends with a newline; `format` is table or json."""
    if format == "json":
        return json_of(document).decode()
    blocks = [block for series in document.series for block in _series(series)]
    return "\n\n".join(blocks or ["no ranked cell of a saved study is like that"]) + "\n"


def _series(series: Series) -> Iterator[str]:
    yield wrapped(title_of(series))
    seconds = [value for point in series.points for value in (point.seconds, point.level)]
    shortest, longest = min(seconds), max(seconds)
    scale = f"{units.seconds(shortest)} .. {units.seconds(longest)}"
    header, rows = cells_of(series)
    for point, row in zip(series.points, rows, strict=True):
        row.insert(2, _dots(point, shortest, longest))
    header.insert(2, scale)
    yield laid_out(header, rows, left=len(header), markdown=False)
    yield "\n".join(map(wrapped, sentences(series)))


def cells_of(series: Series) -> tuple[list[str], list[list[str]]]:
    """A header, and a row of texts for each study; a star marks one at which the step time stepped."""
    starts = {step.study for step in series.steps}
    return ["study", "begun", "step time", "versions"], [
        [
            one_line(point.study),
            one_line(point.created)[:16].replace("T", " "),
            _time(point),
            ("* " if point.study in starts else "") + _versions(series.points, number),
        ]
        for number, point in enumerate(series.points)
    ]


def title_of(series: Series) -> str:
    """The cell, its workload and its machine."""
    threads = units.plural(series.threads, "thread")
    workload = f"{series.model}, {series.dataset}, batch {series.batch_size}, {series.precision}, {threads}"
    other = f", {series.other}" if series.other else ""
    return f"{series.cell}: {workload}{other}, on {series.hostname} ({series.cpu})"


def _dots(point: Point, shortest: float, longest: float) -> str:
    """The level as a bar and the point as a dot, by the logs of their seconds."""
    line = [" "] * _WIDTH
    span = math.log(longest / shortest)
    for seconds, sign in ((point.level, "|"), (point.seconds, "o")):
        line[round((_WIDTH - 1) * math.log(seconds / shortest) / span) if span else 0] = sign
    return f"[{''.join(line)}]"


def _time(point: Point) -> str:
    if point.interval95 is None:
        return f"{units.seconds(point.seconds)} (one process)"
    low, high = point.interval95
    return f"{units.seconds(point.seconds)} ±{units.percent((high - low) / 2 / point.seconds)}"


def _versions(points: Sequence[Point], number: int) -> str:
    """All of the first study, and then what changed."""
    point = points[number]
    if number == 0:
        return ", ".join(f"{one_line(name)} {one_line(value)}" for name, value in point.versions.items())
    return _said(point.changed)


def _said(changed: Changed) -> str:
    return ", ".join(
        f"{one_line(name)} {one_line(str(old or 'none'))} -> {one_line(str(new or 'none'))}"
        for name, (old, new) in changed.items()
    )


def sentences(series: Series) -> Iterator[str]:
    """Where the step time stepped, and what was left out."""
    if not series.steps:
        yield "no step"
    for step in series.steps:
        if not step.acknowledged:
            yield _step(step)
    if known := sum(step.acknowledged for step in series.steps):
        yield f"{units.plural(known, 'acknowledged step')} (*)"
    if series.left_out:
        yield f"{units.plural(series.left_out, 'earlier one')} left out"


def _step(step: Step) -> str:
    word, factor = ("faster", step.ratio) if step.ratio > 1 else ("slower", 1 / step.ratio)
    why = _said(step.changed) or "no version changed"
    return (
        f"* {word} since {step.study}, by a factor of {units.number(factor)}: {why}; to be told no more:"
        f" --acknowledge {step.study}"
    )
