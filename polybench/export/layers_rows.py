"""The times of layers as text: one row a part, engines side by side; a format adds syntax only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

from polybench.core import units
from polybench.core.document.layers import STEP, EngineLayers, LayerRow, LayersDocument
from polybench.export.footnotes import roof_notes
from polybench.export.heading import heading_of
from polybench.export.one_line import one_line

Sort = Literal["network", "lost"]
"""In the order of the network, or by what is lost against the baseline."""

ORDERS: dict[str, Sort] = {order: order for order in get_args(Sort)}

Key = tuple[str, str]
"""Layer and part."""


class Lost(NamedTuple):
    """By how many seconds a part takes longer than in the baseline, in the cell that loses most."""

    seconds: float
    cell: str


class Table(NamedTuple):
    """All text of a table of layers."""

    heading: list[str]
    header: list[str]
    """The first two are words."""
    rows: list[list[str]]
    notes: list[str]


def build(document: LayersDocument, sort: Sort = "network") -> Table:
    """The table; cells without times of layers are in the notes."""
    engines = _with_rows(document)
    lost = lost_by_part(document)
    keys = ordered(document, sort)
    columns = [column for engine in engines for column in _columns(engine)]
    header = ["layer", "part", *(title for title, _ in columns), *(["lost, ms"] if lost else [])]
    totals = [_NOTHING, *_TOTALS] if any(engine.residue_seconds is not None for engine in engines) else []
    rows = [
        [*key, *(texts.get(key, "") for _, texts in columns), *([_lost(lost.get(key))] if lost else [])]
        for key in [*keys, *totals]
    ]
    return Table(
        heading=heading_of(
            document.settings, document.host, [e.samples for e in document.engines if e.samples]
        ),
        header=header,
        rows=rows if engines else [],
        notes=list(_notes(document, engines, compared=bool(lost))),
    )


def ordered(document: LayersDocument, sort: Sort) -> list[Key]:
    """Every part that some cell has; by what is lost, the largest first."""
    keys = list(dict.fromkeys(_key(row) for engine in document.engines for row in engine.rows))
    if sort == "network":
        return keys
    lost = lost_by_part(document)
    return sorted(keys, key=lambda key: -lost[key].seconds if key in lost else 0.0)


def worst(document: LayersDocument) -> LayerRow | None:
    """The part of a layer by which most is lost; where nothing is compared, the one that takes longest."""
    lost = {key: one.seconds for key, one in lost_by_part(document).items()}
    rows = {_key(row): row for engine in document.engines for row in engine.rows if row.layer != STEP}
    seconds = lost or {key: row.seconds_per_step for key, row in rows.items()}
    return max(rows.values(), key=lambda row: seconds.get(_key(row), 0.0), default=None)


def baseline_of(document: LayersDocument) -> EngineLayers | None:
    """The study's baseline where its layers were timed, else the first cell whose layers were."""
    engines = _with_rows(document)
    wanted = document.settings.baseline
    return next((e for e in engines if e.cell == wanted), next(iter(engines), None))


def lost_by_part(document: LayersDocument) -> dict[Key, Lost]:
    """Empty where there is nothing to compare."""
    baseline = baseline_of(document)
    if baseline is None:
        return {}
    seconds = {_key(row): row.seconds_per_step for row in baseline.rows}
    found: dict[Key, Lost] = {}
    for engine in _with_rows(document):
        for row in engine.rows if engine is not baseline else ():
            lost = Lost(row.seconds_per_step - seconds.get(_key(row), 0.0), engine.cell)
            found[_key(row)] = max(lost, found.get(_key(row), lost))
    return found


def _with_rows(document: LayersDocument) -> list[EngineLayers]:
    return [engine for engine in document.engines if engine.rows]


def _key(row: LayerRow) -> Key:
    return row.layer, row.part


_NOTHING = ("", "")
RESIDUE: Key = ("residue", "")
_SUM, _, _STEP = _TOTALS = [("sum of the parts", ""), RESIDUE, ("whole step", "")]


def _columns(engine: EngineLayers) -> list[tuple[str, dict[Key, str]]]:
    """Title and texts of each of a cell's columns."""
    step, residue = engine.step_seconds or 0.0, engine.residue_seconds
    seconds = {_key(row): row.seconds_per_step for row in engine.rows}
    if residue is not None:
        seconds |= {_SUM: step - residue, RESIDUE: residue, _STEP: step}
    rates = {_key(row): row.flop / row.seconds_per_step for row in engine.rows if row.flop}
    columns = [
        (f"{engine.cell} ms", {key: _ms(value) for key, value in seconds.items()}),
        *([("%", {key: f"{100 * value / step:.1f}" for key, value in seconds.items()})] if step else []),
        ("GFLOP/s", {key: units.number(rate / 1e9) for key, rate in rates.items() if rate > 0}),
    ]
    if engine.roof is not None:
        shares = {key: rate / engine.roof.flops_per_second for key, rate in rates.items() if rate > 0}
        if residue is not None and engine.roof.share is not None:
            shares[_STEP] = engine.roof.share
        columns.append(("% of roof", {key: f"{100 * share:.1f}" for key, share in shares.items()}))
    collecting = {
        _key(row): _ms(row.gc_seconds_per_step) for row in engine.rows if row.gc_seconds_per_step is not None
    }
    return [*columns, ("GC ms", collecting)] if collecting else columns


def _ms(seconds: float) -> str:
    """12.3, 0.456; the smallest have no more digits than they deserve."""
    value = 1e3 * seconds
    return units.number(value) if abs(value) >= 0.1 else f"{value:.3f}"


def _lost(lost: Lost | None) -> str:
    return f"{_ms(lost.seconds)} {lost.cell}" if lost and lost.seconds > 0 else ""


def _notes(document: LayersDocument, engines: Sequence[EngineLayers], *, compared: bool) -> Iterator[str]:
    for engine in engines:
        if engine.residue_seconds is not None and engine.step_seconds:
            yield (
                f"{engine.cell}: residue {_interval(engine.residue_seconds, engine.interval95)} ms,"
                f" {engine.residue_seconds / engine.step_seconds:.1%} of a step"
            )
    if any(engine.residue_seconds is not None for engine in engines):
        yield (
            "residue: a whole step less the sum of its parts: what lies between them; below 0 where parts run"
            " side by side or are fused, and cost more alone"
        )
    if engines:
        yield "forward: with that of the ReLU; activation: the gradient through the ReLU"
        yield _intervals(document)
        yield from roof_notes(engine.roof for engine in engines if engine.roof)
    baseline = baseline_of(document)
    if compared and baseline:
        yield f"lost: longer than {baseline.cell}, in the cell that loses most"
    for engine in document.engines:
        yield from _about(engine)
    yield from map(one_line, document.warnings)


def _about(engine: EngineLayers) -> Iterator[str]:
    if engine.parity == "fail":
        yield f"{engine.cell}: did not do the same arithmetic; see polybench parity"
    if engine.rows and engine.gc_seconds_per_step is not None:
        yield (
            f"{engine.cell}: the garbage collector takes {_ms(engine.gc_seconds_per_step)} ms of a whole"
            " step; of the parts it has a column of its own"
        )
    if engine.step_seconds and not engine.rows:
        why = ": timed as a whole only" if engine.whole_step else ""
        step = _interval(engine.step_seconds, engine.step_interval95)
        yield f"{engine.cell}: whole step {step} ms, and no times of its layers{why}"
    if engine.status != "ok":
        reason = f": {one_line(engine.reason)}" if engine.reason else ""
        yield f"{engine.cell}: {engine.status}{reason}" + (
            f" ({one_line(engine.remedy)})" if engine.remedy else ""
        )


def _intervals(document: LayersDocument) -> str:
    processes = [len(engine.samples.step_seconds) for engine in document.engines if engine.samples]
    where = "over fresh processes" if max(processes, default=0) > 1 else "within one run"
    return f"intervals: 95%, {where}"


def _interval(seconds: float, interval: tuple[float, float] | None) -> str:
    if interval is None:
        return _ms(seconds)
    low, high = interval
    return f"{_ms(seconds)} ({_ms(low)} to {_ms(high)})"
