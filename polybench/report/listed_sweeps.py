"""A sweep in the list of what is saved, beside the studies of its points."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from polybench.core.document.sweep import SweepDocument, sweep_from_json
from polybench.core.errors import BadInput
from polybench.core.names import EngineName
from polybench.data.disk import regular_bytes
from polybench.report.listed import FastestPoint, Filters, Listed, ListedCell, Points, seconds_of
from polybench.report.saved_studies import Store


def listed_sweep(sweep: SweepDocument) -> Listed:
    """The row of a saved sweep; the studies of its points say the rest."""
    points = Points(sweep.axes, [point.id for point in sweep.points])
    return Listed(
        file=sweep.id or "",
        when=seconds_of(sweep.created) or 0.0,
        id=sweep.id or "",
        created=sweep.created,
        title=sweep.title,
        model=sweep.model,
        hostname=sweep.host.hostname,
        finished=len(points.studies) == points.planned and not _interrupted(sweep),
        cells=[_cell(curve.cell) for curve in sweep.curves],
        fastest=_fastest(sweep),
        kind="sweep",
        points=points,
    )


def listed_sweeps(store: Store) -> list[Listed]:
    """All that are saved, readable or not."""
    return [_listed(path) for path in store.sweep_files()]


def _listed(path: Path) -> Listed:
    try:
        return listed_sweep(sweep_from_json(regular_bytes(path)))
    except (OSError, msgspec.MsgspecError) as error:
        when = 0.0
        with suppress(OSError):
            when = path.lstat().st_mtime
        return Listed(file=path.stem, when=when, unreadable=str(error), kind="sweep")


def wanted(listed: Sequence[Listed], filters: Filters) -> list[Listed]:
    """Those that the filters choose, in this order; a sweep is chosen by its points, too.

    A sweep itself has no versions, and began when its first point did.
    """
    chosen = {one.file for one in listed if filters.has(one)}
    return [
        one
        for one in listed
        if one.file in chosen or (one.points is not None and not chosen.isdisjoint(one.points.studies))
    ]


def _interrupted(sweep: SweepDocument) -> bool:
    return any(cell.status == "interrupted" for point in sweep.points for cell in point.cells)


def _fastest(sweep: SweepDocument) -> FastestPoint | None:
    measured = [
        FastestPoint(cell.cell, cell.seconds_per_step, cell.samples_per_second, point.values, sweep.unit)
        for point in sweep.points
        for cell in point.cells
        if cell.seconds_per_step is not None and cell.samples_per_second is not None
    ]
    return max(measured, key=lambda one: one.samples_per_second, default=None)


def _cell(name: str) -> ListedCell:
    """From its name alone; a foreign document may have any."""
    way, _, rest = name.partition("/")
    engine, variants = way, ""
    with suppress(BadInput):
        found = EngineName.read(way)
        engine, variants = found.engine, "+".join(found.variants)
    return ListedCell(name, engine, variants or None, rest.partition("/")[0], True, {})
