"""`polybench doctor --on`: every machine of a cluster in one table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import typer

from polybench.commands.live import progress_on_stderr
from polybench.commands.terminal import echo
from polybench.core import interrupts, units

if TYPE_CHECKING:
    from polybench.fleet.doctor import Examinations
    from polybench.measuring.doctor import Report


def doctor_elsewhere(on: str, format: str, *, ship: bool) -> NoReturn:
    """Print what each machine says; ends with 0 if an engine runs on any, else 4."""
    import msgspec

    from polybench.fleet.doctor import examine
    from polybench.measuring.doctor import an_engine_runs

    with interrupts.deferred():
        with progress_on_stderr(quiet=False, verbose=False) as progress:
            found = examine(on, progress, ship=ship)
        text = _text(found) if format != "json" else f"{msgspec.json.encode(found).decode()}\n"
        echo(text, nl=False)
        runs = any(one.report is not None and an_engine_runs(one.report) for one in found.machines)
        raise typer.Exit(130 if found.interrupted else 0 if runs else 4)


def _text(found: Examinations) -> str:
    from polybench.export.records import laid_out, wrapped

    reports = [one.report for one in found.machines if one.report is not None]
    names = list(dict.fromkeys(name for report in reports for name in report["engines"]))
    facts = ("polybench", "python", "threads free", "memory free", "gpus", "other programs")
    lines = [
        [one.machine, *(_facts(one.report, names) if one.report else ["-"] * (len(facts) + len(names)))]
        for one in found.machines
    ]
    header = ["machine", *facts, *names]
    table = laid_out(header, lines, left=len(header), markdown=False)
    notes = [f"{one.machine}: {one.refused}" for one in found.machines if one.refused is not None]
    if found.refused is not None:
        notes.append(f"a study of all is refused: {found.refused}")
    return "\n\n".join([table, *map(wrapped, [*notes, *found.warnings])]) + "\n"


def _facts(report: Report, engines: list[str]) -> list[str]:
    """Those of one machine, and what it has of each engine."""
    machine = report["machine"]
    busy = f"{machine['other_cpu_percent']:.0f} % of a core" + ("" if machine["quiet"] else ", BUSY")
    return [
        report["polybench"],
        machine["python"],
        f"{machine['usable_threads']} of {machine['cores']} cores",
        units.nbytes(machine["available_memory_bytes"]),
        ", ".join(machine["gpus"]) or "none",
        busy,
        *(_engine(report["engines"].get(name)) for name in engines),
    ]


def _engine(entry: dict[str, Any] | None) -> str:
    if entry is None or not entry["runs"]:
        return "missing"
    version = next(iter(entry["versions"].values()), "runs")
    return f"{version} {','.join(entry['devices'])}"
