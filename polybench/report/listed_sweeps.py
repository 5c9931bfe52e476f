"""A sweep in the list of what is saved, beside the studies of its points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from polybench.core.document.sweep import SweepDocument
from polybench.core.errors import BadInput
from polybench.core.names import EngineName
from polybench.report.listed import Listed, ListedCell, seconds_of


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
        finished=True,
        cells=[_cell(curve.cell) for curve in sweep.curves],
        kind="sweep",
    )


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
