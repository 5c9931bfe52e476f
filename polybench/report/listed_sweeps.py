"""A sweep in the list of what is saved, beside the studies of its points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path

import msgspec

from polybench.core.document.sweep import SweepDocument, sweep_from_json
from polybench.core.errors import BadInput
from polybench.core.names import EngineName
from polybench.data.disk import regular_bytes
from polybench.report.listed import Listed, ListedCell, seconds_of
from polybench.report.saved_studies import Store


def listed_sweep(sweep: SweepDocument) -> Listed:
    """The row of a saved sweep; the studies of its points say the rest."""
    title = f"sweep over {varied(sweep.axes)}"
    return Listed(
        file=sweep.id or "",
        when=seconds_of(sweep.created) or 0.0,
        id=sweep.id or "",
        created=sweep.created,
        title=": ".join(filter(None, (sweep.title, title))),
        model=sweep.model,
        hostname=sweep.host.hostname,
        finished=_all_measured(sweep),
        cells=[_cell(curve.cell) for curve in sweep.curves],
        kind="sweep",
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


def _all_measured(sweep: SweepDocument) -> bool:
    wanted = prod(len(values) for values in sweep.axes.values())
    states = {cell.status for point in sweep.points for cell in point.cells}
    return len(sweep.points) == wanted and "interrupted" not in states


def varied(axes: Mapping[str, Sequence[int]]) -> str:
    """Axes and their values in words: `batch size 1, 8; threads 1, 2`."""
    return "; ".join(
        f"{axis.replace('_', ' ')} {', '.join(map(str, values))}" for axis, values in axes.items()
    )


def _cell(name: str) -> ListedCell:
    """From its name alone; a foreign document may have any."""
    way, _, rest = name.partition("/")
    engine, variants = way, ""
    with suppress(BadInput):
        found = EngineName.read(way)
        engine, variants = found.engine, "+".join(found.variants)
    return ListedCell(name, engine, variants or None, rest.partition("/")[0], True, {})
