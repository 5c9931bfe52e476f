"""Allocation sites of each configuration."""

from __future__ import annotations

import msgspec

from polybench.render.table import (
    DEFAULTS,
    Records,
    Table,
    TableOptions,
    number_columns,
    one_line,
    text_columns,
    with_reason,
)
from polybench.schema import units
from polybench.schema.measurements import AllocationsDocument, AllocationSite, ConfigurationAllocations


def table(document: AllocationsDocument, options: TableOptions = DEFAULTS) -> Table:
    """Build a table per configuration with its first allocation sites."""
    settings = document.settings
    title = (
        f"{settings.model} on {settings.dataset}, batch {settings.batch_size}, {settings.precision},"
        f" {settings.threads} threads; one {'training step' if settings.pass_ == 'training' else 'forward pass'}"
    )
    return Table(
        title=[title],
        tables=[_sites(one, options.top) for one in document.configurations],
        notes=[f"warning: {text}" for text in document.warnings],
    )


def records(document: AllocationsDocument, _: TableOptions) -> Records:
    """List a record per allocation site, or per configuration without any."""
    fields = AllocationSite.__struct_fields__
    rows = [
        [one.configuration, one.engine, one.variant, one.device, one.status, *site, one.reason, one.hint]
        for one in document.configurations
        for site in [*map(msgspec.structs.astuple, one.sites)] or [(None,) * len(fields)]
    ]
    return Records(["configuration", "engine", "variant", "device", "status", *fields, "reason", "hint"], rows)


def _sites(one: ConfigurationAllocations, top: int) -> Table:
    if one.source is None or one.bytes_per_step is None or one.count_per_step is None:
        return Table(title=[f"{one.configuration}: {with_reason(one.status, one.reason or 'not measured', one.hint)}"])
    hidden = len(one.sites) - top
    return Table(
        title=[_summary(one, one.bytes_per_step, one.count_per_step)],
        columns=[*text_columns("allocation site"), *number_columns("bytes", "share", "calls", "avoidable")],
        rows=[_row(site, one.bytes_per_step) for site in one.sites[:top]],
        notes=[f"and {units.plural(hidden, 'more allocation site')} (--top)"] if hidden > 0 else [],
    )


def _summary(one: ConfigurationAllocations, size: float, count: float) -> str:
    text = f"{one.configuration}: {units.format_bytes(size)} in {units.format_number(count)} allocations"
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
