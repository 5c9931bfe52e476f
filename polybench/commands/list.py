"""`polybench list`: the saved studies."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from polybench.commands.options import TableOrJson
from polybench.commands.rows import print_rows
from polybench.commands.signature import takes
from polybench.commands.terminal import terminal_width
from polybench.core import units
from polybench.report.listed import EVERYTHING, Filters, Listed


@takes("results")
def list_studies(
    filters: Filters,
    results: Path | None = None,
    points: Annotated[
        bool,
        typer.Option("--points", help="Show the studies of a sweep's points below it; JSON always has them."),
    ] = False,
    format: TableOrJson = "table",
) -> None:
    """List saved studies, sweeps and overheads, oldest first, and what can be resumed; damage is named.

    A sweep is one row, with its number of points, what is varied, and where it is fastest.

    Example: polybench list --engine torch --version torch=2.13 --since 2026-11-01
    """
    from polybench.export.listing import render
    from polybench.measuring.checkpoint import Unfinished
    from polybench.measuring.resumable import without_documents
    from polybench.report.listed_sweeps import finished, listed_sweeps, wanted
    from polybench.report.saved_studies import Store, results_folder

    store = Store(results_folder(results))
    saved = store.listed()
    begun = without_documents(store, saved)
    studies = sorted(
        [*saved, *finished(listed_sweeps(store), begun), *begun], key=lambda one: (one.when, one.file)
    )
    resumable = {*Unfinished(store.folder).ids(), *(one.file for one in begun)}
    now = time.time()
    shown = wanted(studies, filters)
    sweep_of = {id: one.id for one in shown if one.points is not None for id in one.points.studies}
    rows = [_row(study, now, resumable, sweep_of) for study in shown]
    none = _nothing(len(studies), filters)
    print_rows(rows, format, lambda rows: render(rows, terminal_width(), points=points) if rows else none)


def _row(
    study: Listed, now: float, resumable: Collection[str], sweep_of: Mapping[str, str]
) -> dict[str, Any]:
    if study.unreadable is not None:
        return {"id": study.file, "created": None, "unreadable": study.unreadable}
    points = study.points
    return {
        "id": study.id,
        "kind": study.kind,
        "created": study.created,
        "age_seconds": now - study.when,
        "title": study.title,
        "model": study.model,
        "dataset": study.dataset or None,
        "batch_size": study.batch_size or None,
        "host": study.hostname,
        "cells": [cell.cell for cell in study.cells],
        "measured": sum(cell.measured for cell in study.cells),
        "fastest": study.fastest and msgspec.structs.asdict(study.fastest),
        "finished": study.finished,
        "interrupted": study.interrupted,
        "resumable": study.id in resumable,
        "sweep": sweep_of.get(study.id),
        "axes": points and points.axes,
        "points": points and len(points.studies),
        "planned": points and points.planned,
    }


def _nothing(number: int, filters: Filters) -> str:
    if number and filters != EVERYTHING:
        return f"none of {units.count(number)} saved studies is like that"
    return "no saved studies; polybench compare makes one"
