"""One workload on several machines as text: a group of rows for each."""

from __future__ import annotations

from collections.abc import Iterator

from polybench.core import units
from polybench.core.document.merge import Machine, MergeDocument, MergedRow
from polybench.core.document.study import json_of
from polybench.export.one_line import one_line
from polybench.export.records import comma_separated, laid_out, wrapped

_COLUMNS = (
    *("machine", "cell", "engine", "variant", "device", "status", "parity", "seconds_per_step"),
    *("samples_per_second", "epoch_seconds", "speedup", "dollars_per_epoch", "relative_cost"),
)


def render(document: MergeDocument, format: str) -> str:
    """Text that ends with a newline; `format` is one of export.RECORD_FORMATS."""
    if format == "json":
        return json_of(document).decode()
    if format == "csv":
        return _csv(document)
    settings = document.settings
    heading = f"{settings.model} on {settings.dataset}, batch {settings.batch_size}, seed {settings.seed}"
    baseline = f"; baseline {document.baseline}" if document.baseline else ""
    header = [
        "machine",
        "cell",
        "step time",
        f"{settings.unit}s/s",
        "speedup",
        "cost per epoch",
        "relative cost",
    ]
    lines = [line for machine in document.machines for line in _group(document, machine)]
    lines += [[one_line(name), "", "failed", "", "", "", ""] for name in document.absent]
    shown = [number for number in range(len(header)) if number < 2 or any(line[number] for line in lines)]
    table = laid_out(
        [header[number] for number in shown],
        [[line[number] for number in shown] for line in lines],
        left=2,
        markdown=format == "markdown",
    )
    machines = "\n".join(wrapped(_machine(machine)) for machine in document.machines)
    notes = "\n".join(map(wrapped, _notes(document)))
    return "\n\n".join([wrapped(heading + baseline), machines, table, notes]) + "\n"


def _machine(machine: Machine) -> str:
    prices = [f"{device} ${units.number(price)} an hour" for device, price in machine.prices.items()]
    cores = units.plural(machine.cores, "core")
    facts = [machine.cpu, cores, *machine.gpus, units.plural(machine.threads, "thread"), *prices]
    return f"{machine.name}: {', '.join(facts)}; study {machine.study}"


def _group(document: MergeDocument, machine: Machine) -> Iterator[list[str]]:
    """Its name stands in the first row of the group."""
    name = one_line(machine.name)
    for row in document.rows:
        if row.machine == machine.name:
            yield [name, *_line(row, f"{row.machine}:{row.cell}" == document.baseline)]
            name = ""


def _line(row: MergedRow, is_baseline: bool) -> list[str]:
    if row.seconds_per_step is None:
        return [row.cell, row.status, "", "", "", ""]
    speedup = "" if row.speedup is None else units.with_interval(row.speedup, row.speedup95)
    cost = "" if row.dollars_per_epoch is None else f"${units.number(row.dollars_per_epoch)}"
    return [
        row.cell,
        units.seconds(row.seconds_per_step),
        "" if row.samples_per_second is None else units.count(round(row.samples_per_second)),
        "1 (baseline)" if is_baseline else speedup,
        cost,
        "" if row.relative_cost is None else units.number(row.relative_cost),
    ]


def _notes(document: MergeDocument) -> Iterator[str]:
    yield (
        "intervals: 95%, over fresh processes; between machines they hold what differs from process to"
        " process, not what a machine does on another day"
    )
    for machine, why in document.absent.items():
        yield f"{machine}: failed: {why}"
    for row in document.rows:
        name = f"{row.machine}:{row.cell}"
        if row.parity == "fail":
            yield f"{name}: not ranked: it did not do the same arithmetic"
        elif row.seconds_per_step is None or row.reason:
            why = f": {row.reason}" if row.reason else ""
            yield f"{name}: {row.status}{why}" + (f"; {row.remedy}" if row.remedy else "")
        if row.no_verdict:
            yield f"{name}: no verdict: {row.no_verdict}"
    unchecked = [f"{row.machine}:{row.cell}" for row in document.rows if row.parity == "skipped"]
    if unchecked:
        yield f"not checked to be identical: {', '.join(unchecked)}"


def _csv(document: MergeDocument) -> str:
    intervals = ("seconds_per_step_low", "seconds_per_step_high", "speedup_low", "speedup_high")
    lines = [
        [
            *(getattr(row, name) for name in _COLUMNS),
            *(row.interval95 or (None, None)),
            *(row.speedup95 or (None, None)),
        ]
        for row in document.rows
    ]
    return comma_separated([*_COLUMNS, *intervals], lines)
