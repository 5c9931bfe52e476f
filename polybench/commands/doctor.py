"""`polybench doctor`: what runs here, or on other machines, what is missing, and what mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from polybench.commands.doctor_elsewhere import doctor_elsewhere
from polybench.commands.fleet import Ship, refuse_ship_here
from polybench.commands.options import TableOrJson
from polybench.commands.terminal import echo
from polybench.core.names import pick

if TYPE_CHECKING:
    from polybench.measuring.doctor import Report


def doctor(
    format: TableOrJson = "table",
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="local|auto|ray://HOST:PORT|slurm",
            help="Ask every machine there: a Ray cluster's (auto: of the one that runs here), a node of each"
            " partition of SLURM.",
            show_default="this machine",
        ),
    ] = None,
    ship: Ship = False,
) -> None:
    """Show engines, devices, meters, noise and data; ends with 0 if at least one engine runs, else 4.

    With --on the same of each machine there, and what keeps a study from running on it.
    """
    import msgspec

    from polybench.measuring.doctor import an_engine_runs, examined

    pick(format, {"table": None, "json": None}, "format")
    refuse_ship_here(on, ship=ship)
    if on is not None:
        doctor_elsewhere(on, format, ship=ship)
    report = examined()
    echo(msgspec.json.encode(report).decode() if format == "json" else _text(report))
    raise typer.Exit(0 if an_engine_runs(report) else 4)


def _text(report: Report) -> str:
    from polybench.core import units

    machine, data, cache = report["machine"], report["data"], report["cache"]
    quiet = "quiet" if machine["quiet"] else "BUSY: stop other programs before measuring"
    lines = [
        f"machine  {machine['cpu']}, {machine['cores']} cores, {machine['usable_threads']} threads usable",
        f"         {units.nbytes(machine['available_memory_bytes'])} of"
        f" {units.nbytes(machine['memory_bytes'])} memory free; {machine['os']}, Python {machine['python']}",
        f"         {quiet} (other programs {machine['other_cpu_percent']:.0f} % of a core,"
        f" hypervisor {machine['steal_percent']:.0f} %)",
        f"gpus     {', '.join(machine['gpus']) or 'none: no NVIDIA driver'}",
        f"data     CIFAR-10 {'in' if data['cifar10'] else 'not in'} {data['folder']}"
        + ("" if data["cifar10"] else "; get it with: polybench data fetch"),
        f"results  {data['results']}",
        f"cache    {units.nbytes(cache['bytes'])}; to empty it: rm -r {cache['folder']}",
    ]
    for number, meter in enumerate(report["meters"]):
        lines.append(f"{'' if number else 'meters':<8} {_meter_text(meter)}")
    lines.append("")
    for name, entry in report["engines"].items():
        lines += _engine_text(name, entry)
    lines += ["", "variants, networks and columns in words: polybench engines, models, columns"]
    return "\n".join(lines)


def _meter_text(meter: dict[str, Any]) -> str:
    if meter["works"]:
        return f"{meter['what']}: readable"
    remedy = f"; mend it with: {meter['remedy']}" if meter["remedy"] else ""
    return f"{meter['what']}: missing, {meter['reason']}{remedy}"


def _engine_text(name: str, entry: dict[str, Any]) -> list[str]:
    if not entry["runs"]:
        return [
            f"{name:<10} missing  {entry['reason']}",
            f"{'':<10}          mend it with: {entry['remedy']}",
        ]
    versions = ", ".join(f"{what} {version}" for what, version in entry["versions"].items())
    build = ", ".join(f"{what} {value}" for what, value in entry["build"].items())
    lines = [f"{name:<10} runs     {versions} on {', '.join(entry['devices'])}"]
    if build:
        lines.append(f"{'':<10}          {build}")
    if entry["variants"]:
        lines.append(f"{'':<10}          variants: {', '.join(entry['variants'])}")
    return lines
