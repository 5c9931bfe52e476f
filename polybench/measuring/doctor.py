"""What `doctor` says of a machine: what runs here, what is missing, and the one command that mends it."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import platformdirs

from polybench.core.errors import CellFailed, Unavailable
from polybench.core.job import COLD_START
from polybench.core.version import __version__
from polybench.data import cifar10, data_folder
from polybench.engines.installed import all_engines
from polybench.machine import host
from polybench.machine.meters import diagnosis
from polybench.machine.meters.diagnosis import Finding
from polybench.machine.noise import NoiseMeter
from polybench.machine.resident_memory import reset_peak
from polybench.measuring.scratch import scratch_folder
from polybench.report.saved_studies import results_folder
from polybench.wire.environment import worker_environment
from polybench.wire.messages import Load, Loaded
from polybench.wire.process import WorkerProcess

_PROBE_TIMEOUT = 120.0

Report = dict[str, Any]
"""As `doctor --format json` prints it."""


def examined() -> Report:
    """This machine; takes seconds, in which it is busy."""
    return {
        "polybench": __version__,
        "machine": _machine(),
        "data": _data(),
        "cache": _cache(),
        "meters": _meters(),
        "engines": engines(),
    }


def an_engine_runs(report: Report) -> bool:
    """Whether anything can be measured there; the reference is no engine that is."""
    return any(entry["runs"] for name, entry in report["engines"].items() if name != "reference")


def engines() -> dict[str, dict[str, Any]]:
    """Probe every engine in a worker of its own, side by side."""
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
    found = cifar10.locate(data_folder())
    return {"folder": str(data_folder()), "cifar10": found is not None, "results": str(results_folder())}


def _cache() -> dict[str, Any]:
    """What is kept between studies to save time: synthetic images, epochs, the reference's trainings."""
    folder, size = platformdirs.user_cache_path("polybench"), 0
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # a study that ends removes its own
                size += Path(place, name).stat().st_size
    return {"folder": str(folder), "bytes": size}


def _meters() -> list[dict[str, Any]]:
    """What can be told beside times."""
    increase = "increase of peak memory in a step"
    refused = "the kernel does not let a process reset its peak (/proc/self/clear_refs)"
    peak = Finding(True, increase) if reset_peak() else Finding(False, increase, refused)
    found = (peak, diagnosis.native_allocations(), diagnosis.rapl(), *diagnosis.gpus())
    return [msgspec.to_builtins(finding) for finding in found]
