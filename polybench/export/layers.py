"""The times of layers as text."""

from __future__ import annotations

from typing import Any

from polybench.core.document.layers import LayersDocument
from polybench.core.document.study import json_of
from polybench.export.layers_rows import Sort, baseline_of, build, ordered
from polybench.export.records import below, comma_separated, laid_out

_FIELDS = {
    "cell": None,
    "layer": None,
    "part": None,
    "seconds_per_step": "s",
    "low": "s",
    "high": "s",
    "share": None,
    "flop": None,
    "flop_per_second": None,
    "roof": None,
    "compulsory_bytes": "B",
    "gc_seconds_per_step": "s",
    "native_bytes": "B",
    "lost": "s",
}
"""Of a record, with its unit."""


def render(document: LayersDocument, format: str, sort: Sort = "network") -> str:
    """Text that ends with a newline; `format` is one of export.RECORD_FORMATS, JSON is never sorted."""
    if format == "json":
        return json_of(document).decode()
    if format == "csv":
        header = [f"{name} [{unit}]" if unit else name for name, unit in _FIELDS.items()]
        return comma_separated(header, [list(record.values()) for record in records(document, sort)])
    table = build(document, sort)
    markdown = format == "markdown"
    header = table.header if markdown else [title.replace(" ms", "\nms") for title in table.header]
    blocks = (
        ("  \n" if markdown else "\n").join(table.heading),
        laid_out(header, table.rows, left=2, markdown=markdown) if table.rows else "",
        below(table.notes, markdown=markdown),
    )
    return "\n\n".join(block for block in blocks if block) + "\n"


def records(document: LayersDocument, sort: Sort = "network") -> list[dict[str, Any]]:
    """One record for each part of each cell, in SI units: the fields of a line of CSV."""
    baseline = baseline_of(document)
    expected = {(row.layer, row.part): row.seconds_per_step for row in baseline.rows} if baseline else {}
    found = []
    for key in ordered(document, sort):
        for engine in document.engines:
            for row in engine.rows:
                if (row.layer, row.part) != key:
                    continue
                seconds, step = row.seconds_per_step, engine.step_seconds
                low, high = row.interval95 or (None, None)
                share = seconds / step if step else None
                rate = row.flop / seconds if row.flop and seconds > 0 else None
                roof = rate / engine.roof.flops_per_second if rate and engine.roof else None
                lost = seconds - expected[key] if key in expected else None
                values = (
                    engine.cell, *key, seconds, low, high, share, row.flop, rate, roof,
                    row.compulsory_bytes, row.gc_seconds_per_step, row.native_bytes, lost,
                )  # fmt: skip
                found.append(dict(zip(_FIELDS, values, strict=True)))
    return found
