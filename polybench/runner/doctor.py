"""Report of `doctor`: engines and meters of this machine, what is missing, and the command that fixes it."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import platformdirs

from polybench.data import cifar10, data_folder
from polybench.engines import EngineSpec
from polybench.engines.job import COLD_START
from polybench.engines.plugins import load_all_engines
from polybench.errors import ConfigurationFailed, EngineUnavailable, __version__
from polybench.machine import host
from polybench.machine.load import RoundMeter
from polybench.machine.memory import reset_peak
from polybench.machine.meters import availability
from polybench.machine.meters.availability import Availability
from polybench.protocol.environment import worker_environment
from polybench.protocol.messages import Load, Loaded
from polybench.protocol.process import WorkerProcess
from polybench.runner.requirements import variant_requirements
from polybench.runner.scratch import scratch_folder
from polybench.storage.store import results_folder

_PROBE_TIMEOUT = 120.0

Report = dict[str, Any]
"""The JSON of `doctor --format json`."""


def diagnose() -> Report:
    """Examine this machine; takes several seconds of CPU time."""
    return {
        "polybench": __version__,
        "machine": _describe_machine(),
        "data": _describe_data(),
        "cache": _describe_cache(),
        "meters": _describe_meters(),
        "engines": probe_engines(),
    }


def has_working_engine(report: Report) -> bool:
    """Return whether an engine other than the reference runs."""
    return any(entry["runs"] for name, entry in report["engines"].items() if name != "reference")


def probe_engines() -> dict[str, dict[str, Any]]:
    """Load every engine in its own worker, in parallel, and report what it is."""
    specs, broken = load_all_engines()
    specs = {name: spec for name, spec in specs.items() if spec.computes}
    hint = "repair or uninstall its package"
    reports: dict[str, dict[str, Any]] = {
        name: {"runs": False, "reason": reason, "hint": hint} for name, reason in broken.items()
    }
    with contextlib.ExitStack() as stack:
        logs = stack.enter_context(scratch_folder())
        device = "cuda" if host.gpu_names() else "cpu"
        workers = {}
        for name, spec in specs.items():
            environment = worker_environment(spec, device, host.usable_threads())
            # A cold start, because precompiling code for the cache would take a minute.
            environment[COLD_START] = "yes"
            workers[name] = stack.enter_context(WorkerProcess(environment, logs / f"{name}.log"))
            workers[name].send(Load(spec.factory))
        for name, worker in workers.items():
            try:
                info = worker.receive(Load(specs[name].factory), Loaded, _PROBE_TIMEOUT).info
            except EngineUnavailable as error:
                reports[name] = {"runs": False, "reason": error.reason, "hint": error.hint}
            except ConfigurationFailed as error:
                reports[name] = {
                    "runs": False,
                    "reason": str(error),
                    "hint": "reinstall the engine and run doctor again",
                }
            else:
                reports[name] = {
                    "runs": True,
                    "versions": info.versions,
                    "build": info.build,
                    "devices": list(info.devices),
                    "variants": _describe_variants(specs[name]),
                }
    return reports


def _describe_variants(spec: EngineSpec) -> dict[str, dict[str, Any]]:
    """Describe what each of the engine's own variants needs, and whether it is installed."""
    statuses = variant_requirements(spec)
    return {name: msgspec.to_builtins(statuses[name]) for name in sorted(spec.variants)}


def _describe_machine() -> dict[str, Any]:
    """Describe the machine and its background load, observed for one second."""
    this_host = host.this_host()
    meter = RoundMeter()
    time.sleep(1.0)
    interference = meter.stop(0, 0)
    return {
        "cpu": this_host.cpu,
        "cores": this_host.cores,
        "usable_threads": host.usable_threads(),
        "memory_bytes": this_host.memory_bytes,
        "available_memory_bytes": host.available_memory(),
        "gpus": this_host.gpus,
        "cpu_governor": this_host.cpu_governor,
        "other_cpu_percent": interference.other_cpu_percent,
        "steal_percent": interference.steal_percent,
        "idle": not interference.affected,
        "os": this_host.os,
        "python": this_host.python,
    }


def _describe_data() -> dict[str, Any]:
    dataset_folder = cifar10.locate(data_folder())
    return {"folder": str(data_folder()), "cifar10": dataset_folder is not None, "results": str(results_folder())}


def _describe_cache() -> dict[str, Any]:
    """Describe the cache: synthetic images, epochs, states of the reference."""
    folder, size = platformdirs.user_cache_path("polybench"), 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # a study that ends removes its files
                size += Path(path, name).stat().st_size
    return {"folder": str(folder), "bytes": size}


def _describe_meters() -> list[dict[str, Any]]:
    """Describe the meters and whether they work."""
    name = "increase of peak memory in a step"
    reason = "the kernel does not let a process reset its peak (/proc/self/clear_refs)"
    peak = Availability(True, name) if reset_peak() else Availability(False, name, reason)
    meters = (peak, availability.native_allocations(), availability.rapl(), *availability.gpus())
    return [msgspec.to_builtins(meter) for meter in meters]
