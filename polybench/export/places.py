"""Who allocates, cell by cell: the document of `polybench allocations` as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import msgspec
from tabulate import tabulate

from polybench.core import units
from polybench.core.document.places import AllocationsDocument, EnginePlaces, Place
from polybench.export.one_line import one_line

_HEADER = ("place", "bytes", "share", "calls", "reusable")
_ALIGNMENT = ("left", "right", "right", "right", "right")


def table(document: AllocationsDocument, top: int) -> str:
    """Plain text for a terminal, the first `top` places of each cell."""
    return _text(document, top, "simple")


def markdown(document: AllocationsDocument, top: int) -> str:
    """The same in Markdown."""
    return _text(document, top, "pipe")


def comma(document: AllocationsDocument, _: int) -> str:
    """CSV for programs: all places, empty is "no source tells"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["cell", "engine", "variant", "device", "status", *_FIELDS, "reason", "remedy"])
    for engine in document.engines:
        cell = [engine.cell, engine.engine, engine.variant, engine.device, engine.status]
        outcome = [one_line(engine.reason or ""), one_line(engine.remedy or "")]
        rows = [msgspec.structs.astuple(place) for place in engine.places]
        for row in rows or [(None,) * len(_FIELDS)]:
            writer.writerow([*cell, *row, *outcome])
    return text.getvalue()


def json_document(document: AllocationsDocument, _: int) -> str:
    """The whole document."""
    return (msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n").decode()


_FIELDS = Place.__struct_fields__

FORMATS: dict[str, Callable[[AllocationsDocument, int], str]] = {
    "table": table,
    "markdown": markdown,
    "csv": comma,
    "json": json_document,
}
"""By the name for --format."""


def _text(document: AllocationsDocument, top: int, style: str) -> str:
    settings = document.settings
    heading = (
        f"{settings.model} on {settings.dataset}, batch {settings.batch_size}, {settings.precision},"
        f" {settings.threads} threads; a training step"
    )
    blocks = [heading, *(_engine(engine, top, style) for engine in document.engines)]
    return "\n\n".join([*blocks, *(f"warning: {one_line(text)}" for text in document.warnings)]) + "\n"


def _engine(engine: EnginePlaces, top: int, style: str) -> str:
    if engine.source is None or engine.bytes_per_step is None or engine.calls_per_step is None:
        remedy = f" (remedy: {one_line(engine.remedy)})" if engine.remedy else ""
        return f"{engine.cell}: {engine.status}: {one_line(engine.reason or 'not looked at')}{remedy}"
    lines = [_row(place, engine.bytes_per_step) for place in engine.places[:top]]
    left = len(engine.places) - top
    rows = tabulate(lines, _HEADER, style, colalign=_ALIGNMENT, disable_numparse=True) if lines else ""
    more = f"and {units.plural(left, 'place')} more (--top)" if left > 0 else ""
    return "\n\n".join(filter(None, [_summary(engine), rows, more]))


def _summary(engine: EnginePlaces) -> str:
    size, calls = units.nbytes(engine.bytes_per_step or 0), units.number(engine.calls_per_step or 0)
    text = f"{engine.cell}: {size} in {calls} allocations"
    known = [place.reusable_per_step for place in engine.places if place.reusable_per_step is not None]
    saved = sum(place.reusable_bytes_per_step or 0 for place in engine.places)
    if known:
        text += (
            f", of which it could do without {units.number(sum(known))} ({units.nbytes(saved)}):"
            " a block of the same size had been freed in the same step"
        )
    return f"{text}. From {engine.source}: {engine.covers}"


def _row(place: Place, whole: float) -> list[str]:
    share = units.percent(place.bytes_per_step / whole) if whole else ""
    reusable = "" if place.reusable_per_step is None else units.number(place.reusable_per_step)
    return [
        one_line(place.place),
        units.nbytes(place.bytes_per_step),
        share,
        units.number(place.calls_per_step),
        reusable,
    ]
