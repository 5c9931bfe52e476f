"""`polybench list`: lists saved studies."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from polybench.cli.options import TableOrJson, with_options
from polybench.cli.output import print_table, terminal_width
from polybench.results.summaries import StudySummary
from polybench.schema import units
from polybench.storage.filters import NO_FILTERS, Filters

if TYPE_CHECKING:
    from polybench.storage.store import Store


@with_options("results")
def list_studies(
    filters: Filters,
    results: Path | None = None,
    show_points: Annotated[
        bool, typer.Option("--show-points", help="List the studies of a sweep below it; JSON always has them.")
    ] = False,
    format: TableOrJson = "table",
) -> None:
    """The row of a sweep shows its axes, its number of points and its fastest point. Saved layers have rows as well.

    Example: polybench list --engine torch --version torch=2.13 --since 2026-11-01
    """
    from polybench.storage.store import Store, results_folder, without_collections

    with without_collections():
        _print(Store(results_folder(results)), filters, format, show_points=show_points)


def _print(store: Store, filters: Filters, format: str, *, show_points: bool) -> None:
    from polybench.render.study_list import render
    from polybench.storage.filters import filter_summaries

    studies = sorted([*store.summaries(), *store.other_summaries()], key=lambda study: (study.started_at, study.file))
    now = time.time()
    rows = [_row(study, now) for study in filter_summaries(studies, filters)]
    message = _no_studies(len(studies), filters)
    print_table(rows, format, lambda rows: render(rows, terminal_width(), show_points=show_points) if rows else message)


def _row(study: StudySummary, now: float) -> dict[str, Any]:
    if study.unreadable_reason is not None:
        return {"id": study.file, "created": None, "unreadable": study.unreadable_reason}
    points = study.points
    return {
        "id": study.id,
        "kind": study.kind,
        "created": study.created,
        "age_seconds": now - study.started_at,
        "title": study.title,
        "tags": study.tags,
        "model": study.model,
        "pass": study.pass_,
        "dataset": study.dataset or None,
        "batch_size": study.batch_size or None,
        "host": study.hostname,
        "configurations": [configuration.configuration for configuration in study.configurations],
        "measured": sum(configuration.is_measured for configuration in study.configurations),
        "fastest": study.fastest and msgspec.structs.asdict(study.fastest),
        "finished": study.finished,
        "interrupted": study.interrupted,
        "resumable": study.is_resumable,
        "sweep": study.sweep,
        "axes": points and points.axes,
        "points": points and len(points.studies),
        "planned": points and points.point_count,
    }


def _no_studies(number: int, filters: Filters) -> str:
    if number and filters != NO_FILTERS:
        return f"no saved study matches ({units.format_count(number)} searched)"
    return "no saved studies; create one with: polybench compare"
