"""`polybench doctor`: what runs here, what is missing, and the one command that mends it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

import typer

from polybench.commands.options import TableOrJson
from polybench.commands.terminal import echo
from polybench.core.errors import CellFailed, Unavailable
from polybench.core.names import pick

_PROBE_TIMEOUT = 120.0


def doctor(format: TableOrJson = "table") -> None:
    """Show engines, devices, meters, noise and data; ends with 0 if at least one engine runs, else 4."""
    import msgspec

    pick(format, {"table": None, "json": None}, "format")

    report: dict[str, Any] = {
        "machine": _machine(),
        "data": _data(),
        "cache": _cache(),
        "meters": _meters(),
        "engines": _engines(),
    }
    echo(msgspec.json.encode(report).decode() if format == "json" else _text(report))
    frameworks = [entry for name, entry in report["engines"].items() if name != "reference"]
    raise typer.Exit(0 if any(entry["runs"] for entry in frameworks) else 4)


def _engines() -> dict[str, dict[str, Any]]:
    """Probe every engine in a worker of its own, side by side."""
    from polybench.core.job import COLD_START
    from polybench.engines.installed import all_engines
    from polybench.machine import host
    from polybench.measuring.scratch import scratch_folder
    from polybench.wire.environment import worker_environment
    from polybench.wire.messages import Load, Loaded
    from polybench.wire.process import WorkerProcess

    rows, broken = all_engines()
    rows = {name: row for name, row in rows.items() if row.does_arithmetic}
    remedy = "mend that package, or uninstall it"
    found: dict[str, dict[str, Any]] = {
        name: {"runs": False, "reason": reason, "remedy": remedy} for name, reason in broken.items()
    }
    with contextlib.ExitStack() as stack:
        logs = stack.enter_context(scratch_folder())
        device = "cuda" if host.gpus() else "cpu"
        workers = {}
        for name, row in rows.items():
            environment = worker_environment(row, device, host.usable_threads())
            # Without cached code: to make that first would take a minute.
            environment[COLD_START] = "yes"
            workers[name] = stack.enter_context(WorkerProcess(environment, logs / f"{name}.log"))
            workers[name].send(Load(row.factory))
        for name, worker in workers.items():
            variants = sorted(rows[name].variants)
            try:
                answer = worker.receive(Load(rows[name].factory), Loaded, _PROBE_TIMEOUT)
            except Unavailable as error:
                found[name] = {"runs": False, "reason": error.reason, "remedy": error.remedy}
            except CellFailed as error:
                found[name] = {"runs": False, "reason": str(error), "remedy": "reinstall it and try again"}
            else:
                probe = answer.probe
                found[name] = {
                    "runs": True,
                    "versions": probe.versions,
                    "build": probe.build,
                    "devices": list(probe.devices),
                    "variants": variants,
                }
    return found


def _machine() -> dict[str, Any]:
    """The machine, and how quiet it is: one second without anything of ours running."""
    import time

    from polybench.machine import host
    from polybench.machine.noise import NoiseMeter

    this = host.this_host()
    meter = NoiseMeter()
    time.sleep(1.0)
    noise = meter.stop(0, 0)
    return {
        "cpu": this.cpu,
        "cores": this.cores,
        "usable_threads": host.usable_threads(),
        "memory_bytes": this.memory_bytes,
        "available_memory_bytes": host.available_memory(),
        "gpus": this.gpus,
        "governor": this.governor,
        "other_cpu_percent": noise.other_cpu_percent,
        "steal_percent": noise.steal_percent,
        "quiet": not noise.affected,
        "os": this.os,
        "python": this.python,
    }


def _data() -> dict[str, Any]:
    from polybench.data import cifar10, data_folder
    from polybench.report.saved_studies import results_folder

    found = cifar10.locate(data_folder())
    return {"folder": str(data_folder()), "cifar10": found is not None, "results": str(results_folder())}


def _cache() -> dict[str, Any]:
    """What is kept between studies to save time: synthetic images, epochs, the reference's trainings."""
    import platformdirs

    folder, size = platformdirs.user_cache_path("polybench"), 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # a study that ends removes its own
                size += Path(place, name).stat().st_size
    return {"folder": str(folder), "bytes": size}


def _meters() -> list[dict[str, Any]]:
    """What can be told beside times."""
    import msgspec

    from polybench.machine.meters import diagnosis
    from polybench.machine.meters.diagnosis import Finding
    from polybench.machine.resident_memory import reset_peak

    increase = "increase of peak memory in a step"
    refused = "the kernel does not let a process reset its peak (/proc/self/clear_refs)"
    peak = Finding(True, increase) if reset_peak() else Finding(False, increase, refused)
    found = (peak, diagnosis.native_allocations(), diagnosis.rapl(), *diagnosis.gpus())
    return [msgspec.to_builtins(finding) for finding in found]


def _text(report: dict[str, Any]) -> str:
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
