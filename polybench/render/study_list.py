"""List of saved studies: a row per study; those that cannot be read follow with the reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polybench.render import terminal
from polybench.render.table import WIDTH, Table, name_text, one_line
from polybench.schema import units

StudyRow = Mapping[str, Any]
"""A study as in `polybench list --format json`."""

_COLUMNS = ("id", "age", "workload", "fastest", "title", "engines")
"""By importance: the last ones are omitted first."""
_NECESSARY = 4

_MAX_TEXT_WIDTH = 48
"""Characters of a title, a workload or a list of configurations."""

_MIN_TITLE_WIDTH = 10
"""Characters of titles in a terminal that is too narrow for whole ones."""

_INCONCLUSIVE, _MARK = " (cannot tell)", " ?"
_MARK_HINT = "?: it is not certain which is fastest; for the reason: polybench show ID"
_SHORTENED = ("fastest", "workload")
_MIN_TEXT_WIDTH = 20
"""Columns that are shortened in a narrow terminal, and the characters that remain."""

_SWEEP_HINT = "sweeps: print one with polybench show ID; list the study of each point with --show-points"

_RESUME_HINT = "to resume: interrupted, killed or still running; continue with polybench resume ID"


def render(rows: Sequence[StudyRow], width: int | None = None, *, show_points: bool = False) -> str:
    """Render the columns that fit into `width` characters, or all of them.

    Does not lay out with tabulate, which takes half a second for ten thousand rows.
    """
    readable = [row for row in rows if "unreadable" not in row]
    studies = [_texts(row) for row in _group_by_sweep(readable, show_points)]
    widths = {name: max(map(len, [name, *(study[name] for study in studies)])) for name in _COLUMNS}
    names = [name for name in _COLUMNS if any(study[name] for study in studies)]
    while width is not None and len(names) > _NECESSARY and sum(widths[name] + 2 for name in names) - 2 > width:
        names.pop()
    if width is not None:
        if sum(widths[name] + 2 for name in names) - 2 > width:
            names.remove("age")  # the ID starts with the date
        _shorten(studies, widths, names, width)
    room = (width or 0) - sum(widths[name] + 2 for name in names)
    if "title" not in names and room >= _MIN_TITLE_WIDTH and any(study["title"] for study in studies):
        names.append("title")
        widths["title"] = room
        studies = [study | {"title": _truncate(study["title"], room)} for study in studies]
    lines = [{name: name for name in names}, {name: "-" * widths[name] for name in names}, *studies] if studies else []
    table = "\n".join("  ".join(line[name].ljust(widths[name]) for name in names).rstrip() for line in lines)
    unreadable = [
        (one_line(row["id"]), f"unreadable: {one_line(row['unreadable'])}") for row in rows if "unreadable" in row
    ]
    notes = [_SWEEP_HINT] if any(row["axes"] and row["finished"] for row in readable) else []
    notes += [_MARK_HINT] if any(study["fastest"].endswith(_MARK) for study in studies) else []
    notes += [_RESUME_HINT] if any(row["resumable"] for row in readable) else []
    below = terminal.render(Table(statuses=unreadable, notes=notes), width or WIDTH).rstrip()
    return "\n\n".join(filter(None, [table, below]))


def _shorten(studies: Sequence[dict[str, str]], widths: dict[str, int], names: Sequence[str], width: int) -> None:
    """Shorten long texts until each study fits into a line; the mark of inconclusive ones remains."""
    for name in _SHORTENED:
        excess = max(0, sum(widths[name] + 2 for name in names) - 2 - width)
        widths[name] = max(widths[name] - excess, min(widths[name], _MIN_TEXT_WIDTH))
        for study in studies:
            text, mark, _ = study[name].partition(_MARK)
            study[name] = _truncate(text, widths[name] - len(mark)) + mark


def _group_by_sweep(rows: Sequence[StudyRow], show_points: bool) -> Iterator[StudyRow]:
    """Yield the rows in order, with a sweep's points right after it, or without points."""
    by_sweep: dict[str, list[StudyRow]] = {}
    for row in rows:
        by_sweep.setdefault(row["sweep"] or "", []).append(row)
    for row in by_sweep.get("", ()):
        yield row
        yield from by_sweep.get(row["id"], ()) if show_points else ()


def _texts(row: StudyRow) -> dict[str, str]:
    return {
        "id": ("  " if row["sweep"] else "") + row["id"] + _state_label(row),
        "age": units.format_age(row["age_seconds"]),
        "title": _truncate(name_text(row["title"], row["tags"])),
        "workload": _truncate(workload_text(row)),
        "fastest": fastest_text(row).replace(_INCONCLUSIVE, _MARK),
        "engines": _configurations(row["configurations"]),
    }


def workload_text(row: StudyRow) -> str:
    """Describe the network with its data, or with the points of a sweep."""
    batch_size = row["batch_size"] and f"batch {row['batch_size']}"
    model = units.format_model(row["model"], row["pass"])
    if row["kind"] in ("layers", "peak", "allocations"):
        model = f"{row['kind']} of {model}"
    # A narrow terminal cuts the end.
    workload = [model, _points(row)] if row["axes"] else [model, batch_size, row["dataset"]]
    return ", ".join(filter(None, workload))


def _points(row: StudyRow) -> str:
    """Count the points of a sweep and list its axes."""
    started, planned = row["points"], row["planned"]
    number = units.plural(planned, "point") if started == planned else f"{started} of {planned} points"
    return f"{number} over {units.format_axes(row['axes'])}"


def fastest_text(row: StudyRow) -> str:
    """Format the best step time, or the best throughput of a sweep, whose points may differ in batch size."""
    fastest = row["fastest"]
    if not fastest:
        return "" if row["kind"] != "study" else "nothing measured"
    mark = _INCONCLUSIVE if fastest["inconclusive"] else ""
    if row["axes"]:
        rate = f"{units.format_count(round(fastest['items_per_second']))} {fastest['input_kind']}s/s"
        return f"{rate} {fastest['configuration']}, {units.format_point(fastest['parameters'])}{mark}"
    return f"{units.format_seconds(fastest['step_seconds'])} {fastest['configuration']}{mark}"


def _state_label(row: StudyRow) -> str:
    if row["resumable"]:
        return " (to resume)"
    return " (unfinished)" if row["finished"] is False else " (interrupted)" if row["interrupted"] else ""


def _configurations(configurations: Sequence[str]) -> str:
    """List as many configurations as fit, and count the others."""
    shown = next(
        (n for n in range(len(configurations), 1, -1) if len(", ".join(configurations[:n])) <= _MAX_TEXT_WIDTH), 1
    )
    more = [f"{len(configurations) - shown} more"] if len(configurations) > shown else []
    return ", ".join([*configurations[:shown], *more])


def _truncate(text: str, width: int = _MAX_TEXT_WIDTH) -> str:
    text = one_line(text)
    return text if len(text) <= width else f"{text[: width - 1]}…"
