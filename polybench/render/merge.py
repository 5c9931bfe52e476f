"""A workload on several machines as text, with a group of rows per machine."""

from __future__ import annotations

from collections.abc import Iterator

from polybench.render import INTERVALS, one_line
from polybench.render.tables import format_csv, format_table, wrap
from polybench.schema import units
from polybench.schema.analyses import Machine, MachineResult, MergeDocument
from polybench.schema.encoding import encode

_FIELDS = (
    *("machine", "configuration", "engine", "variant", "device", "status", "parity", "step_seconds"),
    *("items_per_second", "epoch_seconds", "speedup", "dollars_per_epoch", "relative_cost"),
)


def render(document: MergeDocument, format: str) -> str:
    """Render in one of render.RECORD_FORMATS, as text that ends with a newline."""
    if format == "json":
        return encode(document).decode()
    if format == "csv":
        return _csv(document)
    settings = document.settings
    header = f"{settings.model} on {settings.dataset}, batch {settings.batch_size}, seed {settings.seed}"
    baseline = f"; baseline {document.baseline}" if document.baseline else ""
    titles = [
        "machine",
        "engine",
        "step time",
        f"{settings.input_kind}s/s",
        "speedup",
        "cost per epoch",
        "relative cost",
    ]
    rows = [row for machine in document.machines for row in _group(document, machine)]
    rows += [[one_line(name), "", "failed", "", "", "", ""] for name in document.failed_machines]
    shown = [number for number in range(len(titles)) if number < 2 or any(row[number] for row in rows)]
    table = format_table(
        [titles[number] for number in shown],
        [[row[number] for number in shown] for row in rows],
        text_columns=2,
        markdown=format == "markdown",
    )
    machines = "\n".join(wrap(_describe(machine)) for machine in document.machines)
    notes = "\n".join(map(wrap, _notes(document)))
    return "\n\n".join([wrap(header + baseline), machines, table, notes]) + "\n"


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
        return [result.configuration, result.status, "", "", "", ""]
    speedup = "" if result.speedup is None else units.format_with_ci(result.speedup, result.speedup_ci95)
    cost = "" if result.dollars_per_epoch is None else f"${units.format_number(result.dollars_per_epoch)}"
    return [
        result.configuration,
        units.format_seconds(result.step_seconds),
        "" if result.items_per_second is None else units.format_count(round(result.items_per_second)),
        "1 (baseline)" if is_baseline else speedup,
        cost,
        "" if result.relative_cost is None else units.format_number(result.relative_cost),
    ]


def _notes(document: MergeDocument) -> Iterator[str]:
    yield f"{INTERVALS}; they do not include how a machine's speed varies from day to day"
    for machine, reason in document.failed_machines.items():
        yield f"{machine}: failed: {reason}"
    for result in document.results:
        name = f"{result.machine}:{result.configuration}"
        if result.parity == "fail":
            yield f"{name}: not ranked: failed the parity check"
        elif result.step_seconds is None or result.reason:
            reason = f": {result.reason}" if result.reason else ""
            yield f"{name}: {result.status}{reason}" + (f" (hint: {result.hint})" if result.hint else "")
        if result.inconclusive_reason:
            yield f"{name}: inconclusive: {result.inconclusive_reason}"
    unchecked = [f"{one.machine}:{one.configuration}" for one in document.results if one.parity == "skipped"]
    if unchecked:
        yield f"no parity check: {', '.join(unchecked)}"


def _csv(document: MergeDocument) -> str:
    intervals = ("step_seconds_low", "step_seconds_high", "speedup_low", "speedup_high")
    rows = [
        [
            *(getattr(result, name) for name in _FIELDS),
            *(result.ci95 or (None, None)),
            *(result.speedup_ci95 or (None, None)),
        ]
        for result in document.results
    ]
    return format_csv([*_FIELDS, *intervals], rows)
