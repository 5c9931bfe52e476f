"""Step times of each configuration over time as text: a line and a dot plot per study, then change points."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from polybench.render import one_line
from polybench.render.tables import format_table, wrap
from polybench.schema import units
from polybench.schema.analyses import Changed, ChangePoint, HistoryDocument, Point, Series
from polybench.schema.encoding import encode

_PLOT_WIDTH = 24
"""Characters of the dot plot, from the shortest step time to the longest."""


def render(document: HistoryDocument, format: str) -> str:
    """Render as a table or JSON, as text that ends with a newline."""
    if format == "json":
        return encode(document).decode()
    blocks = [block for series in document.series for block in _series(series)]
    return "\n\n".join(blocks or ["no ranked configuration of a saved study matches"]) + "\n"


def _series(series: Series) -> Iterator[str]:
    yield wrap(history_title(series))
    seconds = [value for point in series.points for value in (point.step_seconds, point.segment_level)]
    shortest, longest = min(seconds), max(seconds)
    scale = f"{units.format_seconds(shortest)} .. {units.format_seconds(longest)}"
    header, rows = history_rows(series)
    for point, row in zip(series.points, rows, strict=True):
        row.insert(2, _dot_plot(point, shortest, longest))
    header.insert(2, scale)
    yield format_table(header, rows, text_columns=len(header), markdown=False)
    yield "\n".join(map(wrap, history_notes(series)))


def history_rows(series: Series) -> tuple[list[str], list[list[str]]]:
    """Format the column titles and a row for each study; an asterisk marks change points."""
    changed = {change.study for change in series.change_points}
    return ["study", "started", "step time", "versions"], [
        [
            one_line(point.study),
            one_line(point.created)[:16].replace("T", " "),
            _step_time(point),
            ("* " if point.study in changed else "") + _versions(series.points, number),
        ]
        for number, point in enumerate(series.points)
    ]


def history_title(series: Series) -> str:
    """Describe a configuration, its workload and its machine in one line."""
    threads = units.plural(series.threads, "thread")
    workload = f"{series.model}, {series.dataset}, batch {series.batch_size}, {series.precision}, {threads}"
    other = f", {series.distinguishing_settings}" if series.distinguishing_settings else ""
    return f"{series.configuration}: {workload}{other}, on {series.hostname} ({series.cpu})"


def _dot_plot(point: Point, shortest: float, longest: float) -> str:
    """Draw the segment level as a bar and the step time as a dot, on a logarithmic axis."""
    line = [" "] * _PLOT_WIDTH
    span = math.log(longest / shortest)
    for seconds, sign in ((point.segment_level, "|"), (point.step_seconds, "o")):
        line[round((_PLOT_WIDTH - 1) * math.log(seconds / shortest) / span) if span else 0] = sign
    return f"[{''.join(line)}]"


def _step_time(point: Point) -> str:
    if point.ci95 is None:
        return f"{units.format_seconds(point.step_seconds)} (one process)"
    low, high = point.ci95
    margin = units.format_percent((high - low) / 2 / point.step_seconds)
    return f"{units.format_seconds(point.step_seconds)} ±{margin}"


def _versions(points: Sequence[Point], number: int) -> str:
    """List all versions of the first study, and changes in the others."""
    point = points[number]
    if number == 0:
        return ", ".join(f"{one_line(name)} {one_line(value)}" for name, value in point.versions.items())
    return _format_changes(point.changed)


def _format_changes(changed: Changed) -> str:
    return ", ".join(
        f"{one_line(name)} {one_line(str(old or 'none'))} -> {one_line(str(new or 'none'))}"
        for name, (old, new) in changed.items()
    )


def history_notes(series: Series) -> Iterator[str]:
    """Yield the change points and the number of excluded studies."""
    if not series.change_points:
        yield "no change point"
    for change in series.change_points:
        if not change.dismissed:
            yield _describe(change)
    if dismissed := sum(change.dismissed for change in series.change_points):
        yield f"{units.plural(dismissed, 'dismissed change point')} (*)"
    if series.excluded:
        noun = "study" if series.excluded == 1 else "studies"
        yield f"{series.excluded} earlier {noun} excluded"


def _describe(change: ChangePoint) -> str:
    word, factor = ("faster", change.ratio) if change.ratio > 1 else ("slower", 1 / change.ratio)
    reason = _format_changes(change.changed) or "no version changed"
    return (
        f"* {word} by a factor of {units.format_number(factor)} since {change.study}: {reason};"
        f" hide it with --dismiss {change.study}"
    )
