"""`polybench doctor`: checks engines, devices and meters of this machine or of a cluster."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from polybench.cli.cluster import UploadOption, reject_upload
from polybench.cli.live import progress_on_stderr
from polybench.cli.options import MEASUREMENT_PANEL, TableOrJson
from polybench.cli.output import echo
from polybench.machine import interrupts
from polybench.schema import units
from polybench.schema.options import Study
from polybench.schema.result import BUSY_HINT, STEAL_HINT

if TYPE_CHECKING:
    from polybench.cluster.doctor import ClusterDiagnosis
    from polybench.runner.doctor import Report


def doctor(
    show_all: Annotated[
        bool, typer.Option("--all", help="Show reference as well, which polybench uses internally.")
    ] = False,
    format: TableOrJson = "table",
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="TARGET",
            help="Cluster to check: ray://HOST:PORT, auto (the Ray cluster that runs on this machine), or"
            " slurm, with one node per partition.",
            rich_help_panel=MEASUREMENT_PANEL,
            show_default="this machine",
        ),
    ] = None,
    upload: UploadOption = False,
) -> None:
    """The exit code is 0 if at least one engine runs, else 4. With --on, the command checks every machine of a
    cluster, and whether a study could run there.

    Example: polybench doctor --on slurm
    """
    import msgspec

    from polybench.runner.doctor import diagnose, has_working_engine

    reject_upload(on, upload=upload)
    if on is not None:
        diagnose_cluster(on, format, upload=upload, show_all=show_all)
    report = diagnose() if format == "json" else diagnose(_report_engine)
    shown = report if show_all else without_internal_engines(report)
    if format == "json":
        echo(msgspec.json.encode(shown).decode())
    else:
        sections = ("machine", "data", "cache", "meters", "engines")
        for line in [*_what_to_do(report), "", *chain(*(_lines(name, shown[name]) for name in sections))]:
            echo(line)
        echo("\ndescriptions of variants, networks and columns: polybench engines, models, columns")
    raise typer.Exit(0 if has_working_engine(report) else 4)


def _report_engine(section: str, content: Any) -> None:
    """Name on standard error each engine that was examined: starting them takes most of the time."""
    if section == "engines":
        for name in without_internal_engines({"engines": content})["engines"]:
            echo(f"checked {name}", err=True)


def _what_to_do(report: Report) -> list[str]:
    """List what to do before measuring, the most important first, then the command that measures.

    Meters are not needed for that: their section has what to do about them.
    """
    machine, engines = report["machine"], without_internal_engines(report)["engines"]
    steps: list[tuple[str, str]] = []
    if not machine["idle"]:
        steps.append(("machine", f"{_load_hint(machine)} ({_load(machine)})"))
    first = sorted(engines, key=lambda name: name not in Study().engines)
    steps += [
        (name, f"{engines[name]['hint']} ({engines[name]['reason']})") for name in first if not engines[name]["runs"]
    ]
    if not report["data"]["cifar10"]:
        steps.append(("data", "polybench data fetch (CIFAR-10 is missing; studies use synthetic images)"))
    if working := [name for name in first if engines[name]["runs"]]:
        wanted = [name for name in working if name in Study().engines] or working
        steps.append(("measure", f"polybench compare --engines {','.join(wanted)}"))
    size = max((len(name) for name, _ in steps), default=0)
    return ["What to do first:", *(f"  {name:<{size}}  {text}" for name, text in steps)]


def _load_hint(machine: dict[str, Any]) -> str:
    is_mostly_steal = machine["steal_percent"] > machine["other_cpu_percent"]
    return STEAL_HINT if is_mostly_steal else BUSY_HINT


def _load(machine: dict[str, Any]) -> str:
    return f"other programs {machine['other_cpu_percent']:.0f} % of a core, hypervisor {machine['steal_percent']:.0f} %"


def _lines(section: str, content: Any) -> list[str]:
    """Describe a section of the report."""
    lines: list[str] = []
    if section == "machine":
        free, memory = (units.format_bytes(content[key]) for key in ("available_memory_bytes", "memory_bytes"))
        lines = [
            f"machine  {content['cpu']}, {content['cores']} cores, {content['usable_threads']} usable threads",
            f"         {free} of {memory} memory free; {content['os']}, Python {content['python']}",
            f"load     {'idle' if content['idle'] else 'BUSY'} ({_load(content)})",
            f"gpus     {', '.join(content['gpus']) or 'none: no NVIDIA driver'}",
        ]
    elif section == "data":
        found = "in" if content["cifar10"] else "not in"
        hint = "" if content["cifar10"] else "; download it with: polybench data fetch"
        lines = [f"data     CIFAR-10 {found} {content['folder']}{hint}", f"results  {content['results']}"]
    elif section == "cache":
        lines = [f"cache    {units.format_bytes(content['bytes'])}; empty it with: rm -r {content['folder']}"]
    elif section == "meters":
        texts = map(_meter_text, content)
        lines = [f"{'' if number else 'meters':<8} {text}" for number, text in enumerate(texts)]
    elif section == "engines":
        lines = ["", *chain(*(_engine_lines(name, entry) for name, entry in content.items()))]
    return lines


def _meter_text(meter: dict[str, Any]) -> str:
    if meter["available"]:
        return f"{meter['meter']}: readable"
    hint = f"; fix it with: {meter['hint']}" if meter["hint"] else ""
    return f"{meter['meter']}: missing, {meter['reason']}{hint}"


def _engine_lines(name: str, entry: dict[str, Any]) -> list[str]:
    indent = f"{'':<10}          "
    if not entry["runs"]:
        return [f"{name:<10} missing  {entry['reason']}", f"{indent}fix it with: {entry['hint']}"]
    versions = ", ".join(f"{package} {version}" for package, version in entry["versions"].items())
    build = ", ".join(f"{property} {value}" for property, value in entry["build"].items())
    lines = [f"{name:<10} runs     {versions} on {', '.join(entry['devices'])}"]
    if build:
        lines.append(f"{indent}{build}")
    installed = [variant for variant, status in entry["variants"].items() if status["installed"]]
    if installed:
        lines.append(f"{indent}variants: {', '.join(installed)}")
    for variant, status in entry["variants"].items():
        if not status["installed"]:
            lines.append(f"{indent}missing variant: {variant} requires {status['requires']}: {status['hint']}")
    return lines


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
        text = _cluster_text(found) if format != "json" else f"{msgspec.json.encode(found).decode()}\n"
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


def _cluster_text(found: ClusterDiagnosis) -> str:
    from polybench.render.table import Table, text_columns
    from polybench.render.terminal import render

    reports = [machine.report for machine in found.machines if machine.report is not None]
    engines = list(dict.fromkeys(name for report in reports for name in report["engines"]))
    header = ("machine", "polybench", "python", "free threads", "free memory", "gpus", "other programs", *engines)
    rows = [
        [one.machine, *(_cells(one.report, engines) if one.report else ["-"] * (len(header) - 1))]
        for one in found.machines
    ]
    notes = [f"{machine.machine}: {machine.error}" for machine in found.machines if machine.error is not None]
    if found.error is not None:
        notes.append(f"a study on all of these machines would be rejected: {found.error}")
    return render(Table(columns=text_columns(*header), rows=rows, notes=[*notes, *found.warnings]))


def _cells(report: Report, engines: list[str]) -> list[str]:
    """Return facts of a machine, and the version of each engine."""
    machine = report["machine"]
    cells = [
        report["polybench"],
        machine["python"],
        f"{machine['usable_threads']} of {machine['cores']} cores",
        units.format_bytes(machine["available_memory_bytes"]),
        ", ".join(machine["gpus"]) or "none",
        f"{machine['other_cpu_percent']:.0f} % of a core" + ("" if machine["idle"] else ", BUSY"),
    ]
    for entry in map(report["engines"].get, engines):
        is_working = entry is not None and entry["runs"]
        version = next(iter(entry["versions"].values()), "runs") if is_working else ""
        cells.append(f"{version} {','.join(entry['devices'])}" if is_working else "missing")
    return cells
