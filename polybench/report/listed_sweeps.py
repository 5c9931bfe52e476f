"""A sweep, or an overhead, in the list of what is saved, beside the studies of its points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from polybench.core.document.overhead import OverheadDocument, overhead_from_json
from polybench.core.document.sweep import SweepDocument, sweep_from_json
from polybench.core.errors import BadInput
from polybench.core.names import EngineName
from polybench.data.disk import regular_bytes
from polybench.report.listed import FastestPoint, Filters, Kind, Listed, ListedCell, Points, seconds_of
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


def listed_overhead(overhead: OverheadDocument) -> Listed:
    """The row of a saved overhead; no cell of it is the fastest, since each is a line."""
    points = Points({"batch_size": overhead.batch_sizes}, overhead.studies)
    interrupted = any(engine.status == "interrupted" for engine in overhead.engines)
    return Listed(
        file=overhead.id or "",
        when=seconds_of(overhead.created) or 0.0,
        id=overhead.id or "",
        created=overhead.created,
        model=overhead.model,
        hostname=overhead.host.hostname,
        finished=len(points.studies) == points.planned and not interrupted,
        cells=[
            ListedCell(one.cell, one.engine, one.variant, one.device, one.fixed_seconds is not None, {})
            for one in overhead.engines
        ],
        kind="overhead",
        points=points,
    )


def listed_sweeps(store: Store) -> list[Listed]:
    """All sweeps and overheads that are saved, readable or not."""
    sweeps = [_listed(path, "sweep", _read_sweep) for path in store.sweep_files()]
    return [*sweeps, *(_listed(path, "overhead", _read_overhead) for path in store.overhead_files())]


def _read_sweep(text: bytes) -> Listed:
    return listed_sweep(sweep_from_json(text))


def _read_overhead(text: bytes) -> Listed:
    return listed_overhead(overhead_from_json(text))


def _listed(path: Path, kind: Kind, read: Callable[[bytes], Listed]) -> Listed:
    try:
        return read(regular_bytes(path))
    except (OSError, msgspec.MsgspecError) as error:
        when = 0.0
        with suppress(OSError):
            when = path.lstat().st_mtime
        return Listed(file=path.stem, when=when, unreadable=str(error), kind=kind)


def finished(sweeps: Sequence[Listed], begun: Sequence[Listed]) -> list[Listed]:
    """Those sweeps of which nothing is to be resumed: one that was interrupted has a document, too."""
    resumed = {id for one in begun if one.points is not None for id in one.points.studies}
    return [one for one in sweeps if one.points is None or resumed.isdisjoint(one.points.studies)]


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
