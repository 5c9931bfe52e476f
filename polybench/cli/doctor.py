"""`polybench doctor`: checks engines, devices and meters of this machine or of a cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from polybench.cli.cluster import UploadOption, reject_upload
from polybench.cli.doctor_cluster import diagnose_cluster, without_internal_engines
from polybench.cli.options import MEASUREMENT_PANEL, TableOrJson
from polybench.cli.output import echo

if TYPE_CHECKING:
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
    """Check this machine: engines, variants, devices, meters, background load and data.

    The exit code is 0 if at least one engine runs, else 4. With --on, the command checks every machine of a
    cluster, and whether a study could run there.
    """
    import msgspec

    from polybench.runner.doctor import diagnose, has_working_engine

    reject_upload(on, upload=upload)
    if on is not None:
        diagnose_cluster(on, format, upload=upload, show_all=show_all)
    report = diagnose()
    if not show_all:
        report = without_internal_engines(report)
    echo(msgspec.json.encode(report).decode() if format == "json" else _text(report))
    raise typer.Exit(0 if has_working_engine(report) else 4)


def _text(report: Report) -> str:
    from polybench.schema import units

    machine, data, cache = report["machine"], report["data"], report["cache"]
    load = "idle" if machine["idle"] else "BUSY: stop other programs before measuring"
    lines = [
        f"machine  {machine['cpu']}, {machine['cores']} cores, {machine['usable_threads']} usable threads",
        f"         {units.format_bytes(machine['available_memory_bytes'])} of"
        f" {units.format_bytes(machine['memory_bytes'])} memory free; {machine['os']}, Python"
        f" {machine['python']}",
        f"         {load} (other programs {machine['other_cpu_percent']:.0f} % of a core,"
        f" hypervisor {machine['steal_percent']:.0f} %)",
        f"gpus     {', '.join(machine['gpus']) or 'none: no NVIDIA driver'}",
        f"data     CIFAR-10 {'in' if data['cifar10'] else 'not in'} {data['folder']}"
        + ("" if data["cifar10"] else "; download it with: polybench data fetch"),
        f"results  {data['results']}",
        f"cache    {units.format_bytes(cache['bytes'])}; empty it with: rm -r {cache['folder']}",
    ]
    for number, meter in enumerate(report["meters"]):
        lines.append(f"{'' if number else 'meters':<8} {_meter_text(meter)}")
    lines.append("")
    for name, entry in report["engines"].items():
        lines += _engine_lines(name, entry)
    lines += ["", "descriptions of variants, networks and columns: polybench engines, models, columns"]
    return "\n".join(lines)


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
