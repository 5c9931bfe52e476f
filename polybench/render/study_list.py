"""List of saved studies: one line per study, or a block of lines on a narrow terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polybench.render.table import one_line, wrap
from polybench.schema import units

StudyRow = Mapping[str, Any]
"""A study as in `polybench list --format json`."""

Texts = dict[str, str]
"""Text by column; a study that cannot be read has only `id` and `unreadable`, the reason."""

_MAX_TEXT_WIDTH = 48
"""Characters of a title, a workload or a list of configurations."""

_MIN_REASON_WIDTH = 40
"""Characters that a reason needs beside an ID; on narrower terminals it follows below."""

_SWEEP_HINT = "sweeps: print one with polybench show ID; list the study of each point with --show-points"

_RESUME_HINT = "to resume: interrupted, killed or still running; continue with polybench resume ID"


def render(rows: Sequence[StudyRow], width: int | None = None, *, show_points: bool = False) -> str:
    """Render the studies as a table, or as blocks of lines if the most important columns do not fit.

    The reason why a study cannot be read is never truncated. Without a width, each study has one line.
    """
    studies = [_texts(row) for row in _group_by_sweep(rows, show_points)]
    text = _table(studies, width)
    if text is None:
        text = "\n\n".join(_block(study, width or 0) for study in studies)
    notes = [_SWEEP_HINT] if any(row.get("axes") and row["finished"] for row in rows) else []
    notes += [_RESUME_HINT] if any(row.get("resumable") for row in rows) else []
    notes = notes if width is None else [wrap(note, width) for note in notes]
    return "\n\n".join([text, *notes[:1]]) + "".join(f"\n{note}" for note in notes[1:])


def _group_by_sweep(rows: Sequence[StudyRow], show_points: bool) -> Iterator[StudyRow]:
    """Yield the rows in order, with a sweep's points right after it, or without points."""
    by_sweep: dict[str, list[StudyRow]] = {}
    for row in rows:
        by_sweep.setdefault(row.get("sweep") or "", []).append(row)
    for row in by_sweep.get("", ()):
        yield row
        yield from by_sweep.get(row["id"], ()) if show_points else ()


def _texts(row: StudyRow) -> Texts:
    if "unreadable" in row:
        return {"id": one_line(row["id"]), "unreadable": f"unreadable: {one_line(row['unreadable'])}"}
    workload = [row["model"], row["dataset"], row["batch_size"] and f"batch {row['batch_size']}"]
    if row["axes"]:
        workload = [row["model"], _points(row)]
    return {
        "id": ("  " if row["sweep"] else "") + row["id"] + _state_label(row),
        "age": units.format_age(row["age_seconds"]),
        "title": _truncate(row["title"] or ""),
        "workload": _truncate(", ".join(filter(None, workload))),
        "fastest": _fastest(row),
        "engines": _configurations(row["configurations"]),
    }


def _points(row: StudyRow) -> str:
    """Count the points of a sweep and list its axes."""
    started, planned = row["points"], row["planned"]
    number = units.plural(planned, "point") if started == planned else f"{started} of {planned} points"
    return f"{number} over {units.format_axes(row['axes'])}"


def _fastest(row: StudyRow) -> str:
    """Format the best step time, or the best throughput of a sweep, whose points may differ in batch size."""
    fastest = row["fastest"]
    if not fastest:
        return "" if row["axes"] else "nothing measured"
    if row["axes"]:
        rate = f"{units.format_count(round(fastest['items_per_second']))} {fastest['input_kind']}s/s"
        return f"{rate} {fastest['configuration']}, {units.format_point(fastest['parameters'])}"
    return f"{units.format_seconds(fastest['step_seconds'])} {fastest['configuration']}"


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


def _table(studies: Sequence[Texts], width: int | None) -> str | None:
    """Lay out as many columns as fit; None if the necessary ones do not.

    Does not use tabulate, which takes half a second for ten thousand rows.
    """
    title = ["title"] if any(study.get("title") for study in studies) else []
    for names in (
        ["id", "age", *title, "workload", "fastest", "engines"],
        ["id", "age", *title, "workload", "fastest"],
        ["id", "age", "workload", "fastest"],
    ):
        widths = {name: max(len(name), *(len(study.get(name, "")) for study in studies)) for name in names}
        if width is None or _fits(studies, widths, width):
            header = [_join(dict(zip(names, names, strict=True)), widths)]
            header.append(_join({name: "-" * size for name, size in widths.items()}, widths))
            return "\n".join([*header, *(_line(study, widths, width) for study in studies)])
    return None


def _fits(studies: Sequence[Texts], widths: Mapping[str, int], width: int) -> bool:
    reason_width = width - widths["id"] - widths["age"] - 4
    unreadable = any("unreadable" in study for study in studies)
    return sum(widths.values()) + 2 * (len(widths) - 1) <= width and (
        not unreadable or reason_width >= _MIN_REASON_WIDTH
    )


def _line(study: Texts, widths: Mapping[str, int], width: int | None) -> str:
    if "unreadable" not in study:
        return _join(study, widths)
    indent = " " * (widths["id"] + widths["age"] + 4)
    reason = study["unreadable"] if width is None else wrap(study["unreadable"], width, indent, indent)
    return study["id"].ljust(len(indent)) + reason.lstrip()


def _join(texts: Mapping[str, str], widths: Mapping[str, int]) -> str:
    return "  ".join(texts[name].ljust(size) for name, size in widths.items()).rstrip()


def _block(study: Texts, width: int) -> str:
    """Format the ID, and each column on a line below it."""
    lines = [wrap(study["id"], width)]
    lines += [
        wrap(study[name], width, f"  {name:<8}  ", " " * 12)
        for name in ("age", "title", "workload", "fastest", "engines")
        if study.get(name)
    ]
    if "unreadable" in study:
        lines.append(wrap(study["unreadable"], width, "  ", "  "))
    return "\n".join(lines)


def _truncate(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _MAX_TEXT_WIDTH else f"{text[: _MAX_TEXT_WIDTH - 1]}…"
