"""`polybench list`: the saved studies."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from polybench.commands.options import TableOrJson
from polybench.commands.rows import Rows, print_rows
from polybench.commands.signature import takes
from polybench.core import units
from polybench.report.listed import EVERYTHING, Filters, Listed

_WIDEST = 48
"""Characters of a title, of a workload, of a list of cells."""


@takes("results")
def list_studies(
    wanted: Filters,
    results: Path | None = None,
    format: TableOrJson = "table",
) -> None:
    """List saved studies, oldest first, and what can be resumed; what cannot be read is shown as unreadable.

    Example: polybench list --engine torch --version torch=2.13 --since 2026-11-01
    """
    from polybench.measuring.checkpoint import Unfinished
    from polybench.measuring.resumable import without_documents
    from polybench.report.saved_studies import Store, results_folder

    store = Store(results_folder(results))
    saved = store.listed()
    begun = without_documents(store, saved)
    studies = sorted([*saved, *begun], key=lambda one: (one.when, one.file))
    resumable = {*Unfinished(store.folder).ids(), *(one.file for one in begun)}
    now = time.time()
    rows = [_row(study, now, resumable) for study in studies if wanted.has(study)]
    none = _nothing(len(studies), wanted)
    print_rows(rows, format, lambda rows: _table(rows) if rows else none)


def _row(study: Listed, now: float, resumable: Collection[str]) -> dict[str, Any]:
    if study.unreadable is not None:
        return {"id": study.file, "created": None, "unreadable": study.unreadable}
    fastest = study.fastest
    return {
        "id": study.id,
        "created": study.created,
        "age_seconds": now - study.when,
        "title": study.title,
        "model": study.model,
        "dataset": study.dataset,
        "batch_size": study.batch_size,
        "host": study.hostname,
        "cells": [cell.cell for cell in study.cells],
        "measured": sum(cell.measured for cell in study.cells),
        "fastest": fastest and {"cell": fastest.cell, "seconds_per_step": fastest.seconds_per_step},
        "finished": study.finished,
        "interrupted": study.interrupted,
        "resumable": study.id in resumable,
    }


def _nothing(number: int, wanted: Filters) -> str:
    if number and wanted != EVERYTHING:
        return f"none of {units.count(number)} saved studies is like that"
    return "no saved studies; polybench compare makes one"


def _state(row: dict[str, Any]) -> str:
    if row["resumable"]:
        return " (to resume)"
    return " (not finished)" if row["finished"] is False else " (interrupted)" if row["interrupted"] else ""


def _table(rows: Rows) -> str:
    """Laid out here: with thousands of rows a library of tables takes seconds."""
    titled = any(row.get("title") for row in rows)
    header = ["id", "age", *(["title"] if titled else []), "workload", "fastest", "cells"]
    lines = [header, *(_line(row, titled) for row in rows)]
    widths = [max(len(line[i]) for line in lines if i < len(line) - 1) for i in range(len(header) - 1)]
    lines.insert(1, ["-" * width for width in [*widths, len(header[-1])]])
    table = "\n".join(_joined(line, widths) for line in lines)
    if any(row.get("resumable") for row in rows):
        table += "\n\nto resume: was stopped, killed, or runs still; polybench resume ID goes on"
    return table


def _joined(line: list[str], widths: list[int]) -> str:
    """The last column as long as it is."""
    padded = (text.ljust(width) for text, width in zip(line[:-1], widths, strict=False))
    return "  ".join([*padded, line[-1]]).rstrip()


def _line(row: dict[str, Any], titled: bool) -> list[str]:
    if "unreadable" in row:
        return [row["id"], "", f"unreadable: {_short(row['unreadable'], 2 * _WIDEST)}"]
    fastest = row["fastest"]
    return [
        row["id"] + _state(row),
        units.age(row["age_seconds"]),
        *([_short(row["title"] or "")] if titled else []),
        _short(f"{row['model']}, {row['dataset']}, batch {row['batch_size']}"),
        f"{units.seconds(fastest['seconds_per_step'])} {fastest['cell']}" if fastest else "nothing measured",
        _cells(row["cells"]),
    ]


def _cells(cells: list[str]) -> str:
    """As many as a line holds, and how many more there are."""
    shown = next((n for n in range(len(cells), 1, -1) if len(", ".join(cells[:n])) <= _WIDEST), 1)
    more = [f"{len(cells) - shown} more"] if len(cells) > shown else []
    return ", ".join([*cells[:shown], *more])


def _short(text: str, width: int = _WIDEST) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 1]}…"
