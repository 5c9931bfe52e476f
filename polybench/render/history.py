"""Step times of each configuration over time: a row per study, then change points."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from polybench.render.table import DEFAULTS, Records, Table, TableOptions, name_text, one_line, text_columns
from polybench.schema import units
from polybench.schema.analyses import Changed, ChangePoint, HistoryDocument, Point, Series

NO_SERIES = "no ranked configuration of a saved study matches"


def table(document: HistoryDocument, _: TableOptions = DEFAULTS) -> Table:
    """Build a table per configuration."""
    if not document.series:
        return Table(title=[NO_SERIES])
    return Table(tables=[series_table(series, document.tolerance) for series in document.series])


def records(document: HistoryDocument, _: TableOptions) -> Records:
    """List a record per study of each configuration."""
    hidden = ("points", "change_points", "verdict", "reason", "controls", "excluded")
    labels = [name for name in Series.__struct_fields__ if name not in hidden]
    fields = [name for name in Point.__struct_fields__ if name not in ("ci95", "versions", "changed", "tags")]
    rows = [
        [
            *(getattr(series, name) for name in labels),
            *(getattr(point, name) for name in fields),
            *(point.ci95 or (None, None)),
            _format_changes(point.changed),
            " ".join(point.tags),
        ]
        for series in document.series
        for point in series.points
    ]
    return Records([*labels, *fields, "low", "high", "changed", "tags"], rows)


def series_table(series: Series, tolerance: float) -> Table:
    """Build a row for each study of a configuration; an asterisk marks change points."""
    changed = {change.study for change in series.change_points}
    rows = [
        [
            one_line(point.study),
            one_line(point.created)[:16].replace("T", " "),
            step_time(point),
            ("* " if point.study in changed else "") + _versions(series.points, number),
        ]
        for number, point in enumerate(series.points)
    ]
    threads = units.plural(series.threads, "thread")
    model = units.format_model(series.model, series.pass_)
    workload = f"{model}, {series.dataset}, batch {series.batch_size}, {series.precision}, {threads}"
    other = f", {series.distinguishing_settings}" if series.distinguishing_settings else ""
    return Table(
        title=[f"{series.configuration}: {workload}{other}, on {series.hostname} ({series.cpu})"],
        columns=text_columns("study", "started", "step time", "versions"),
        rows=rows,
        notes=list(_notes(series, tolerance)),
    )


def step_time(point: Point) -> str:
    """Format the step time of a study, with its margin of error."""
    if point.inconclusive_reason is not None:
        return f"{units.format_seconds(point.step_seconds)} (cannot tell)"
    if point.ci95 is None:
        return f"{units.format_seconds(point.step_seconds)} (one process)"
    return units.format_seconds_with_margin(point.step_seconds, point.ci95)


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


def _notes(series: Series, tolerance: float) -> Iterator[str]:
    """Yield the change points, reasons of inconclusive points, titles and the number of excluded studies."""
    if not series.change_points:
        known = f"{series.verdict} above {units.format_percent(tolerance)}"
        found = f"cannot tell: {series.reason}" if series.reason else known
        yield f"no change point; from the first half of the studies to the second: {found}"
    for change in series.change_points:
        yield f"* {_describe_change(change)}"
    if series.controls:
        yield f"without the machine's drift, which {', '.join(series.controls)} show{'s' * (len(series.controls) == 1)}"
    elif series.change_points:
        yield (
            f"no other engine on {series.device} is in these studies, so a change of the machine cannot be"
            " distinguished from one of the engine"
        )
    for point in series.points:
        if point.inconclusive_reason:
            yield f"{point.study}: cannot tell: {point.inconclusive_reason}"
    studies: dict[str, list[str]] = {}
    for point in series.points:
        studies.setdefault(name_text(point.title, point.tags), []).append(point.study)
    yield from (f"{name}: {', '.join(named)}" for name, named in studies.items() if name)
    if series.spread:
        yield f"spread between studies: {series.spread.description}"
    if series.excluded:
        noun = "study" if series.excluded == 1 else "studies"
        yield f"{series.excluded} earlier {noun} excluded"


def _describe_change(change: ChangePoint) -> str:
    """Describe a change point: direction, factor, study and versions that differ."""
    word, sign = ("faster", 1) if change.ratio > 1 else ("slower", -1)
    low, high = sorted(bound**sign for bound in change.ci95)
    factor = units.format_with_ci(change.ratio**sign, (low, high))
    reason = _format_changes(change.changed) or "no version changed"
    return f"{word} by a factor of {factor} since {change.study}: {reason}"
