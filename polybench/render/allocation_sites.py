"""Allocation sites of each configuration as text."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable

import msgspec
from tabulate import tabulate

from polybench.render import one_line
from polybench.schema import units
from polybench.schema.measurements import AllocationsDocument, AllocationSite, ConfigurationAllocations

_TITLES = ("allocation site", "bytes", "share", "calls", "avoidable")
_ALIGNMENT = ("left", "right", "right", "right", "right")


def format_text(document: AllocationsDocument, top: int) -> str:
    """Format plain text with the first `top` allocation sites of each configuration."""
    return _format(document, top, "simple")


def format_markdown(document: AllocationsDocument, top: int) -> str:
    """Format Markdown with the first `top` allocation sites of each configuration."""
    return _format(document, top, "pipe")


def format_csv(document: AllocationsDocument, _: int) -> str:
    """Format CSV with all allocation sites; an empty field means "no source"."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["configuration", "engine", "variant", "device", "status", *_FIELDS, "reason", "hint"])
    for one in document.configurations:
        labels = [one.configuration, one.engine, one.variant, one.device, one.status]
        status = [one_line(one.reason or ""), one_line(one.hint or "")]
        rows = [msgspec.structs.astuple(site) for site in one.sites]
        for row in rows or [(None,) * len(_FIELDS)]:
            writer.writerow([*labels, *row, *status])
    return text.getvalue()


def format_json(document: AllocationsDocument, _: int) -> str:
    """Format the whole document as JSON."""
    return (msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n").decode()


_FIELDS = AllocationSite.__struct_fields__

FORMATS: dict[str, Callable[[AllocationsDocument, int], str]] = {
    "table": format_text,
    "markdown": format_markdown,
    "csv": format_csv,
    "json": format_json,
}
"""Formats of `polybench allocations`, by their name for --format."""


def _format(document: AllocationsDocument, top: int, style: str) -> str:
    settings = document.settings
    header = (
        f"{settings.model} on {settings.dataset}, batch {settings.batch_size}, {settings.precision},"
        f" {settings.threads} threads; one training step"
    )
    blocks = [header, *(_block(one, top, style) for one in document.configurations)]
    return "\n\n".join([*blocks, *(f"warning: {one_line(text)}" for text in document.warnings)]) + "\n"


def _block(one: ConfigurationAllocations, top: int, style: str) -> str:
    if one.source is None or one.bytes_per_step is None or one.count_per_step is None:
        hint = f" (hint: {one_line(one.hint)})" if one.hint else ""
        return f"{one.configuration}: {one.status}: {one_line(one.reason or 'not measured')}{hint}"
    rows = [_row(site, one.bytes_per_step) for site in one.sites[:top]]
    table = tabulate(rows, _TITLES, style, colalign=_ALIGNMENT, disable_numparse=True) if rows else ""
    hidden = len(one.sites) - top
    more = f"and {units.plural(hidden, 'more allocation site')} (--top)" if hidden > 0 else ""
    return "\n\n".join(filter(None, [_summary(one), table, more]))


def _summary(one: ConfigurationAllocations) -> str:
    size = units.format_bytes(one.bytes_per_step or 0)
    text = f"{one.configuration}: {size} in {units.format_number(one.count_per_step or 0)} allocations"
    avoidable = [
        site.avoidable_allocations_per_step for site in one.sites if site.avoidable_allocations_per_step is not None
    ]
    if avoidable:
        avoidable_bytes = sum(site.avoidable_bytes_per_step or 0 for site in one.sites)
        text += (
            f"; {units.format_number(sum(avoidable))} of them ({units.format_bytes(avoidable_bytes)}) are"
            " avoidable: the step had freed a block of the same size"
        )
    return f"{text}. Source: {one.source}; coverage: {one.coverage}"


def _row(site: AllocationSite, total_bytes: float) -> list[str]:
    avoidable = site.avoidable_allocations_per_step
    return [
        one_line(site.location),
        units.format_bytes(site.bytes_per_step),
        units.format_percent(site.bytes_per_step / total_bytes) if total_bytes else "",
        units.format_number(site.count_per_step),
        "" if avoidable is None else units.format_number(avoidable),
    ]
