"""Layer times as text."""

from __future__ import annotations

from typing import Any

from polybench.render.layer_table import Sort, build_table, find_baseline, sort_operations
from polybench.render.tables import format_csv, format_notes, format_table
from polybench.schema.encoding import encode
from polybench.schema.measurements import LayersDocument

_FIELDS = {
    "configuration": None,
    "layer": None,
    "operation": None,
    "seconds_per_step": "s",
    "low": "s",
    "high": "s",
    "share": None,
    "flops": None,
    "flops_per_second": None,
    "fraction_of_peak": None,
    "min_bytes_moved": "B",
    "gc_seconds_per_step": "s",
    "native_bytes": "B",
    "slowdown": "s",
}
"""Fields of a record, with their units."""


def render(document: LayersDocument, format: str, sort: Sort = "network") -> str:
    """Render in one of render.RECORD_FORMATS, as text that ends with a newline; JSON is never sorted."""
    if format == "json":
        return encode(document).decode()
    if format == "csv":
        header = [f"{name} [{unit}]" if unit else name for name, unit in _FIELDS.items()]
        return format_csv(header, [list(record.values()) for record in layer_records(document, sort)])
    table = build_table(document, sort)
    markdown = format == "markdown"
    titles = [title if markdown else title.replace(" ms", "\nms") for title in table.column_titles]
    blocks = (
        ("  \n" if markdown else "\n").join(table.header_lines),
        format_table(titles, table.rows, text_columns=2, markdown=markdown) if table.rows else "",
        format_notes(table.notes, markdown=markdown),
    )
    return "\n\n".join(block for block in blocks if block) + "\n"


def layer_records(document: LayersDocument, sort: Sort = "network") -> list[dict[str, Any]]:
    """List a record for each operation of each configuration, in SI units, as in CSV."""
    baseline = find_baseline(document)
    baseline_seconds = {(row.layer, row.operation): row.seconds_per_step for row in baseline.rows} if baseline else {}
    records = []
    for key in sort_operations(document, sort):
        for configuration in document.configurations:
            for row in configuration.rows:
                if (row.layer, row.operation) != key:
                    continue
                seconds, step, peak = row.seconds_per_step, configuration.step_seconds, configuration.peak
                low, high = row.ci95 or (None, None)
                share = seconds / step if step else None
                rate = row.flops / seconds if row.flops and seconds > 0 else None
                fraction = rate / peak.flops_per_second if rate and peak else None
                slowdown = seconds - baseline_seconds[key] if key in baseline_seconds else None
                values = (
                    configuration.configuration, *key, seconds, low, high, share, row.flops, rate, fraction,
                    row.min_bytes_moved, row.gc_seconds_per_step, row.native_bytes, slowdown,
                )  # fmt: skip
                records.append(dict(zip(_FIELDS, values, strict=True)))
    return records
