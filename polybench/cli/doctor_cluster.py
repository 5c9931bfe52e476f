"""`polybench doctor --on`: the machines of a cluster in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import typer

from polybench.cli.live import progress_on_stderr
from polybench.cli.output import echo
from polybench.machine import interrupts
from polybench.schema import units

if TYPE_CHECKING:
    from polybench.cluster.doctor import ClusterDiagnosis
    from polybench.runner.doctor import Report


def diagnose_cluster(on: str, format: str, *, upload: bool, show_all: bool) -> NoReturn:
    """Print a report of each machine; exit with 0 if an engine runs on any of them, else with 4."""
    import msgspec

    from polybench.cluster.doctor import diagnose
    from polybench.runner.doctor import has_working_engine

    with interrupts.defer_signals():
        with progress_on_stderr(quiet=False, verbose=False) as progress:
            found = diagnose(on, progress, upload=upload)
        if not show_all:
            for machine in found.machines:
                machine.report = machine.report and without_internal_engines(machine.report)
        text = _text(found) if format != "json" else f"{msgspec.json.encode(found).decode()}\n"
        echo(text, nl=False)
        has_engine = any(
            machine.report is not None and has_working_engine(machine.report) for machine in found.machines
        )
        raise typer.Exit(130 if found.interrupted else 0 if has_engine else 4)


def without_internal_engines(report: Report) -> Report:
    """Remove the engines that polybench uses internally from a report."""
    from polybench.engines import ENGINES

    internal = {name for name, spec in ENGINES.items() if spec.internal}
    return report | {"engines": {name: entry for name, entry in report["engines"].items() if name not in internal}}


def _text(found: ClusterDiagnosis) -> str:
    from polybench.render.table import Table, text_columns
    from polybench.render.terminal import render

    reports = [machine.report for machine in found.machines if machine.report is not None]
    engines = list(dict.fromkeys(name for report in reports for name in report["engines"]))
    facts = ("polybench", "python", "free threads", "free memory", "gpus", "other programs")
    lines = [
        [
            machine.machine,
            *(_row(machine.report, engines) if machine.report else ["-"] * (len(facts) + len(engines))),
        ]
        for machine in found.machines
    ]
    notes = [f"{machine.machine}: {machine.error}" for machine in found.machines if machine.error is not None]
    if found.error is not None:
        notes.append(f"a study on all of these machines would be rejected: {found.error}")
    return render(Table(columns=text_columns("machine", *facts, *engines), rows=lines, notes=[*notes, *found.warnings]))


def _row(report: Report, engines: list[str]) -> list[str]:
    """Return a machine's row of the table: facts, and the version of each engine."""
    machine = report["machine"]
    busy = f"{machine['other_cpu_percent']:.0f} % of a core" + ("" if machine["idle"] else ", BUSY")
    return [
        report["polybench"],
        machine["python"],
        f"{machine['usable_threads']} of {machine['cores']} cores",
        units.format_bytes(machine["available_memory_bytes"]),
        ", ".join(machine["gpus"]) or "none",
        busy,
        *(_engine(report["engines"].get(name)) for name in engines),
    ]


def _engine(entry: dict[str, Any] | None) -> str:
    if entry is None or not entry["runs"]:
        return "missing"
    version = next(iter(entry["versions"].values()), "runs")
    return f"{version} {','.join(entry['devices'])}"
