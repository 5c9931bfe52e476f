"""The list of saved studies: a line each, or a block of lines where lines are too narrow for that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from polybench.core import units
from polybench.export.sweep_cells import place_of
from polybench.export.terminal import wrapped

Row = Mapping[str, Any]
"""A study as `polybench list --format json` has it."""

Texts = dict[str, str]
"""The same as text by column; of a study that cannot be read its ID, and why it cannot."""

_WIDEST = 48
"""Characters of a title, of a workload, of a list of cells."""

_NARROWEST = 40
"""Characters in which a reason is read beside an ID rather than below it."""

_SWEEPS = "sweeps, overheads: polybench show ID prints one; list --points has the study of each point"

_TO_RESUME = "to resume: was stopped, killed, or runs still; polybench resume ID goes on"


def render(rows: Sequence[Row], width: int | None = None, *, points: bool = False) -> str:
    """The studies as a table, or in blocks of lines where their most important columns do not fit.

    Why a study cannot be read, and what mends that, is never cut.

    Args:
        rows: the studies, one or more.
        width: characters of a line; None where a study is one line, however long.
        points: show the studies of a sweep's points, below it.
    """
    studies = [_texts(row) for row in _below_their_sweeps(rows, points)]
    text = _table(studies, width)
    if text is None:
        text = "\n\n".join(_block(study, width or 0) for study in studies)
    notes = [_SWEEPS] if any(row.get("axes") and row["finished"] for row in rows) else []
    notes += [_TO_RESUME] if any(row.get("resumable") for row in rows) else []
    notes = notes if width is None else [wrapped(note, width) for note in notes]
    return "\n\n".join([text, *notes[:1]]) + "".join(f"\n{note}" for note in notes[1:])


def _below_their_sweeps(rows: Sequence[Row], points: bool) -> Iterator[Row]:
    """The rows in their order, but a sweep's points right after it, or nowhere."""
    parts: dict[str, list[Row]] = {}
    for row in rows:
        parts.setdefault(row.get("sweep") or "", []).append(row)
    for row in parts.get("", ()):
        yield row
        yield from parts.get(row["id"], ()) if points else ()


def _texts(row: Row) -> Texts:
    if "unreadable" in row:
        why = _on_one_line(row["unreadable"])
        return {"id": _on_one_line(row["id"]), "unreadable": f"unreadable: {why}"}
    workload = [row["model"], row["dataset"], row["batch_size"] and f"batch {row['batch_size']}"]
    if row["axes"]:
        workload = [row["model"], _points(row)]
    return {
        "id": ("  " if row["sweep"] else "") + row["id"] + _state(row),
        "age": units.age(row["age_seconds"]),
        "title": _short(row["title"] or ""),
        "workload": _short(", ".join(filter(None, workload))),
        "fastest": _fastest(row),
        "cells": _cells(row["cells"]),
    }


def _points(row: Row) -> str:
    """How many there are, and of what."""
    begun, planned = row["points"], row["planned"]
    number = units.plural(planned, "point") if begun == planned else f"{begun} of {planned} points"
    return f"{number} over {units.varied(row['axes'])}"


def _fastest(row: Row) -> str:
    """Of a sweep its throughput: points may have other batches, whose steps are not to be compared."""
    fastest = row["fastest"]
    if not fastest:
        return "" if row["axes"] else "nothing measured"
    if row["axes"]:
        rate = f"{units.count(round(fastest['samples_per_second']))} {fastest['unit']}s/s"
        return f"{rate} {fastest['cell']}, {place_of(fastest['values'])}"
    return f"{units.seconds(fastest['seconds_per_step'])} {fastest['cell']}"


def _state(row: Row) -> str:
    if row["resumable"]:
        return " (to resume)"
    return " (not finished)" if row["finished"] is False else " (interrupted)" if row["interrupted"] else ""


def _cells(cells: Sequence[str]) -> str:
    """As many as a line holds, and how many more there are."""
    shown = next((n for n in range(len(cells), 1, -1) if len(", ".join(cells[:n])) <= _WIDEST), 1)
    more = [f"{len(cells) - shown} more"] if len(cells) > shown else []
    return ", ".join([*cells[:shown], *more])


def _table(studies: Sequence[Texts], width: int | None) -> str | None:
    """As many columns as a line holds; None where it does not hold those that are needed.

    Laid out here: with thousands of rows a library of tables takes seconds.
    """
    titled = ["title"] if any(study.get("title") for study in studies) else []
    for names in (
        ["id", "age", *titled, "workload", "fastest", "cells"],
        ["id", "age", *titled, "workload", "fastest"],
        ["id", "age", "workload", "fastest"],
    ):
        widths = {name: max(len(name), *(len(study.get(name, "")) for study in studies)) for name in names}
        if width is None or _fits(studies, widths, width):
            header = [_joined(dict(zip(names, names, strict=True)), widths)]
            header.append(_joined({name: "-" * each for name, each in widths.items()}, widths))
            return "\n".join([*header, *(_line(study, widths, width) for study in studies)])
    return None


def _fits(studies: Sequence[Texts], widths: Mapping[str, int], width: int) -> bool:
    beside_an_id = width - widths["id"] - widths["age"] - 4
    unreadable = any("unreadable" in study for study in studies)
    return sum(widths.values()) + 2 * (len(widths) - 1) <= width and (
        not unreadable or beside_an_id >= _NARROWEST
    )


def _line(study: Texts, widths: Mapping[str, int], width: int | None) -> str:
    if "unreadable" not in study:
        return _joined(study, widths)
    before = " " * (widths["id"] + widths["age"] + 4)
    why = study["unreadable"] if width is None else wrapped(study["unreadable"], width, before, before)
    return study["id"].ljust(len(before)) + why.lstrip()


def _joined(texts: Mapping[str, str], widths: Mapping[str, int]) -> str:
    return "  ".join(texts[name].ljust(each) for name, each in widths.items()).rstrip()


def _block(study: Texts, width: int) -> str:
    """The ID, and each column below it on a line of its own."""
    lines = [wrapped(study["id"], width)]
    lines += [
        wrapped(study[name], width, f"  {name:<8}  ", " " * 12)
        for name in ("age", "title", "workload", "fastest", "cells")
        if study.get(name)
    ]
    if "unreadable" in study:
        lines.append(wrapped(study["unreadable"], width, "  ", "  "))
    return "\n".join(lines)


def _short(text: str) -> str:
    text = _on_one_line(text)
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _on_one_line(text: str) -> str:
    return " ".join(text.split())
