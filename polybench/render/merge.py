"""A workload on several machines, with a group of rows per machine."""

from __future__ import annotations

from collections.abc import Iterator

from polybench.render.table import DEFAULTS, INTERVALS, Column, Records, Table, TableOptions, one_line, with_reason
from polybench.schema import units
from polybench.schema.analyses import Machine, MachineResult, MergeDocument
from polybench.schema.result import BUSY, mark_inconclusive

_FIELDS = (
    *("machine", "configuration", "engine", "variant", "device", "status", "parity", "step_seconds"),
    *("items_per_second", "epoch_seconds", "speedup", "dollars_per_epoch", "relative_cost", "inconclusive_reason"),
)


def table(document: MergeDocument, _: TableOptions = DEFAULTS) -> Table:
    """Build a row per configuration of each machine; costs only if there are prices."""
    settings = document.settings
    model = units.format_model(settings.model, settings.pass_)
    header = f"{model} on {settings.dataset}, batch {settings.batch_size}, seed {settings.seed}"
    baseline = f"; baseline {document.baseline}" if document.baseline else ""
    titles = ("machine", "engine", "step time", f"{settings.input_kind}s/s", "speedup", "cost per epoch")
    columns = [Column(title, number > 1) for number, title in enumerate((*titles, "relative cost"))]
    rows = [row for machine in document.machines for row in _group(document, machine)]
    rows += [[one_line(name), "", "failed", "", "", "", ""] for name in document.failed_machines]
    shown = [number for number in range(len(columns)) if number < 2 or any(row[number] for row in rows)]
    return Table(
        title=[header + baseline, *map(_describe, document.machines)],
        columns=[columns[number] for number in shown],
        rows=[[row[number] for number in shown] for row in rows],
        notes=[*_notes(document), *map(one_line, document.warnings)],
    )


def records(document: MergeDocument, _: TableOptions) -> Records:
    """List a record per configuration of each machine."""
    rows = [
        [
            *(getattr(result, name) for name in _FIELDS),
            *(result.ci95 or (None, None)),
            *(result.speedup_ci95 or (None, None)),
        ]
        for result in document.results
    ]
    return Records([*_FIELDS, "step_seconds_low", "step_seconds_high", "speedup_low", "speedup_high"], rows)


def _describe(machine: Machine) -> str:
    prices = [f"{device} ${units.format_number(price)}/hour" for device, price in machine.prices.items()]
    cores = units.plural(machine.cores, "core")
    facts = [machine.cpu, cores, *machine.gpus, units.plural(machine.threads, "thread"), *prices]
    return f"{machine.name}: {', '.join(facts)}; study {machine.study}"


def _group(document: MergeDocument, machine: Machine) -> Iterator[list[str]]:
    """Yield the rows of a machine; only the first contains its name."""
    name = one_line(machine.name)
    for result in document.results:
        if result.machine == machine.name:
            yield [name, *_row(result, f"{result.machine}:{result.configuration}" == document.baseline)]
            name = ""


def _row(result: MachineResult, is_baseline: bool) -> list[str]:
    if result.step_seconds is None:
        return [result.configuration, BUSY if result.busy else result.status, "", "", "", ""]
    speedup = "" if result.speedup is None else units.format_with_ci(result.speedup, result.speedup_ci95)
    cost = ""
    if result.relative_cost is not None:
        cost = units.format_with_margin(result.relative_cost, result.relative_cost_ci95)
    return [
        result.configuration,
        units.format_seconds(result.step_seconds),
        "" if result.items_per_second is None else units.format_count(round(result.items_per_second)),
        "1" if is_baseline else mark_inconclusive(speedup, result.inconclusive_reason),
        "" if result.dollars_per_epoch is None else f"${units.format_number(result.dollars_per_epoch)}",
        mark_inconclusive(cost, result.inconclusive_reason),
    ]


def _notes(document: MergeDocument) -> Iterator[str]:
    yield f"{INTERVALS}; those between machines contain the spread between studies of each one"
    for machine in document.machines:
        for device, spread in machine.spreads.items():
            yield f"{one_line(machine.name)}: spread between studies on {device}: {spread.description}"
    for name, reason in document.failed_machines.items():
        yield f"{name}: failed: {reason}"
    for result in document.results:
        name = f"{result.machine}:{result.configuration}"
        if result.parity == "fail":
            yield f"{name}: not ranked: failed the parity check"
        elif result.step_seconds is None or result.reason:
            yield f"{name}: {with_reason(result.status, result.reason, result.hint)}"
        if result.inconclusive_reason:
            yield f"{name}: cannot tell: {result.inconclusive_reason}"
    unchecked = [f"{one.machine}:{one.configuration}" for one in document.results if one.parity == "skipped"]
    if unchecked:
        yield f"no parity check: {', '.join(unchecked)}"
