"""Report of `doctor`: engines and meters of this machine, what is missing, and the command that fixes it."""

from __future__ import annotations

import contextlib
import ctypes.util
import functools
import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import platformdirs

from polybench.data import Dataset, cifar10, data_folder
from polybench.data.batch_files import write_epoch
from polybench.data.batches import epoch_order
from polybench.engines import ALLOCATOR_VARIANTS, ENGINES, EngineSpec
from polybench.engines.job import COLD_START, Job
from polybench.errors import ConfigurationFailed, EngineUnavailable, __version__, install_command
from polybench.machine import host
from polybench.machine.load import RoundMeter
from polybench.machine.memory import reset_peak
from polybench.machine.meters import availability
from polybench.machine.meters.availability import Availability
from polybench.networks import MODELS
from polybench.networks.initial_weights import initial_weights
from polybench.protocol import calls
from polybench.protocol.calls import Prepared
from polybench.protocol.environment import PRELOADED_ALLOCATORS, worker_environment
from polybench.protocol.process import WorkerProcess, wait_for_any
from polybench.runner.scratch import scratch_folder
from polybench.schema.options import Workload
from polybench.storage.store import results_folder

_PROBE_TIMEOUT = 120.0
_MIN_LOAD_SECONDS = 0.5

Report = dict[str, Any]
"""The JSON of `doctor --format json`."""


def diagnose(on_section: Callable[[str, Any], object] = lambda *_: None) -> Report:
    """Examine this machine, and pass each section as soon as it is known; takes several seconds of CPU time."""
    report: Report = {"engines": {}}
    for section, content in examine():
        on_section(section, content)
        report[section] = report.get(section, {}) | content if isinstance(content, dict) else content
    report["engines"] = {name: report["engines"][name] for name in sorted(report["engines"], key=_table_order)}
    return report


def _table_order(engine: str) -> int:
    names = [*ENGINES]
    return names.index(engine) if engine in names else len(names)


def examine() -> Iterator[tuple[str, Any]]:
    """Yield each section of the report as soon as it is known, engine after engine; the load of the machine is last."""
    meter = RoundMeter()
    yield "polybench", __version__
    yield "machine", _describe_machine()
    yield "data", _describe_data()
    yield "cache", _describe_cache()
    yield "meters", _describe_meters()
    for name, entry in probe_engines():
        yield "engines", {name: entry | {"cuda": _cuda(name)}}
    # It does not include polybench's own processes, so engines may start meanwhile.
    time.sleep(max(0.0, _MIN_LOAD_SECONDS - meter.seconds))
    load = meter.stop(0, 0)
    yield (
        "machine",
        {"other_cpu_percent": load.other_cpu_percent, "steal_percent": load.steal_percent, "idle": not load.affected},
    )


def _cuda(name: str) -> str | None:
    """Return where the CUDA code of an engine of polybench has run; None for an engine without any."""
    row = ENGINES.get(name)
    if row is None or "cuda" not in row.devices:
        return None
    return f"ran on {row.ran_on}" if row.ran_on else "never ran on a GPU"


def has_working_engine(report: Report) -> bool:
    """Return whether an engine other than the reference runs."""
    return any(entry["runs"] for name, entry in report["engines"].items() if name != "reference")


def probe_engines() -> Iterator[tuple[str, dict[str, Any]]]:
    """Load every engine in its own worker, one per core at a time, and yield what it is as soon as it is known."""
    specs, broken = ENGINES.load_all()
    for name, reason in broken.items():
        yield name, {"runs": False, "reason": reason, "hint": "repair or uninstall its package"}
    # The slowest starts first, so that no core is idle at the end.
    waiting = sorted(
        (name for name, spec in specs.items() if spec.computes), key=lambda name: -specs[name].startup_seconds
    )
    device = "cuda" if host.gpu_names() else "cpu"
    with contextlib.ExitStack() as stack:
        logs = stack.enter_context(scratch_folder())
        workers: dict[str, WorkerProcess] = {}
        while waiting or workers:
            while waiting and len(workers) < host.usable_threads():
                name = waiting.pop(0)
                problem = _engine_problem(specs[name])
                if problem:
                    yield name, {"runs": False, "reason": problem.reason, "hint": problem.hint}
                    continue
                environment = worker_environment(specs[name], device, host.usable_threads())
                # A cold start, because precompiling code for the cache would take a minute.
                environment[COLD_START] = "yes"
                workers[name] = stack.enter_context(WorkerProcess(environment, logs / f"{name}.log"))
                workers[name].send(calls.load(specs[name].factory))
            for name in wait_for_any(workers, _PROBE_TIMEOUT) or [*workers]:
                with workers.pop(name) as worker:
                    yield name, _probe(specs[name], worker)


def _probe(spec: EngineSpec, worker: WorkerProcess) -> dict[str, Any]:
    """Receive the description of an engine from its worker, which has answered or does not answer in time."""
    try:
        info = worker.receive(calls.load(spec.factory), _PROBE_TIMEOUT).info
    except EngineUnavailable as error:
        return {"runs": False, "reason": error.reason, "hint": error.hint}
    except ConfigurationFailed as error:
        return {"runs": False, "reason": str(error), "hint": "reinstall the engine and run doctor again"}
    finally:
        worker.kill()  # an orderly end takes a second
    return {
        "runs": True,
        "versions": info.versions,
        "build": info.build,
        "devices": list(info.devices),
        "variants": _describe_variants(spec),
    }


def _describe_variants(spec: EngineSpec) -> dict[str, dict[str, Any]]:
    """Describe what each of the engine's own variants needs, and whether it is installed."""
    statuses = variant_requirements(spec)
    return {name: msgspec.to_builtins(statuses[name]) for name in sorted(spec.variants)}


def _describe_machine() -> dict[str, Any]:
    this_host = host.this_host()
    return {
        "cpu": this_host.cpu,
        "cores": this_host.cores,
        "usable_threads": host.usable_threads(),
        "memory_bytes": this_host.memory_bytes,
        "available_memory_bytes": host.available_memory(),
        "gpus": this_host.gpus,
        "cpu_governor": this_host.cpu_governor,
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


class RequirementStatus(msgspec.Struct, frozen=True):
    """Requirement of an engine or variant, and whether this machine meets it.

    Attributes:
        requires: software or device; None if the engine's own are enough.
        install: command that installs it; None for a device.
        installed: the machine meets the requirement.
        hint: command that fixes the problem; None if installed.
    """

    requires: str | None
    install: str | None
    installed: bool
    hint: str | None = None


def engine_requirement(spec: EngineSpec) -> RequirementStatus:
    """Check the packages and other software that an engine needs."""
    commands = [install_command(spec.extra)] if spec.extra else []
    commands += [spec.requires.install] if spec.requires else []
    names = [*spec.packages, *([spec.requires.name] if spec.requires else [])]
    problem = _engine_problem(spec)
    return RequirementStatus(
        ", ".join(names) or None, "; ".join(commands) or None, problem is None, problem.hint if problem else None
    )


def variant_requirements(spec: EngineSpec) -> dict[str, RequirementStatus]:
    """Check what each variant of an engine needs in addition to the engine, allocators included."""
    return {name: _variant_requirement(spec, name) for name in spec.variants | ALLOCATOR_VARIANTS}


def _variant_requirement(spec: EngineSpec, name: str) -> RequirementStatus:
    variant = (spec.variants | ALLOCATOR_VARIANTS)[name]
    if variant.cuda_only:
        has_gpu = bool(host.gpu_names())
        return RequirementStatus(
            "a CUDA device", None, has_gpu, None if has_gpu else "use a machine with an NVIDIA GPU"
        )
    if variant.requires is None:
        problem = _engine_problem(spec)
        return RequirementStatus(None, None, problem is None, problem.hint if problem else None)
    if name in PRELOADED_ALLOCATORS:
        installed = _has_library(name)
        hint = None if installed else variant.requires.install
    else:
        problem = _engine_problem(spec, (name,))
        installed, hint = problem is None, problem.hint if problem else None
        if not installed and _engine_problem(spec) is not None:
            hint = variant.requires.install  # which installs the engine as well, or names the other extra
    return RequirementStatus(variant.requires.name, variant.requires.install, installed, hint)


@functools.cache
def _has_library(allocator: str) -> bool:
    names, _ = PRELOADED_ALLOCATORS[allocator]
    return any(map(ctypes.util.find_library, names))


def _engine_problem(spec: EngineSpec, variants: tuple[str, ...] = ()) -> EngineUnavailable | None:
    """Return the first missing piece of software of an engine with these variants."""
    missing = [package for package in spec.packages if not _is_installed(package)]
    if missing:
        hint = install_command(spec.extra) if spec.extra else f"pip install {' '.join(missing)}"
        return EngineUnavailable(f"{', '.join(missing)} is not installed", hint)
    if spec.requirement_check is None:
        return None
    module, _, function = spec.requirement_check.partition(":")
    try:
        getattr(importlib.import_module(module), function)(variants)
    except EngineUnavailable as problem:
        return problem
    return None


def _is_installed(package: str) -> bool:
    """Check for a package by the name of its module, or by that of its distribution."""
    if importlib.util.find_spec(package.replace("-", "_")) is not None:
        return True
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


_TIMEOUT_SECONDS = 600.0
_STEPS, _BATCH_SIZE = 2, 8


def smoke_test(name: str) -> Prepared:
    """Train two steps of an engine (with variants: `flux+enzyme`) on random images; return startup times and losses.

    Raises EngineUnavailable if it fails.
    """
    engine, *variants = name.split("+")
    model, spec = MODELS["lenet"], ENGINES[engine]
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (_STEPS * _BATCH_SIZE, *model.input_shape), dtype=np.uint8)
    labels = random.integers(0, model.classes, len(pixels), dtype=np.uint8)
    threads = host.usable_threads()
    workload = Workload(model.name, "noise", _BATCH_SIZE, model.optimizer, "fp32", threads)
    with scratch_folder() as folder:
        order = epoch_order(len(pixels), _BATCH_SIZE, seed=0, epoch=0)
        epoch = write_epoch(Dataset("synthetic", "noise", pixels, labels, ""), order, folder)
        weights: dict[str, Any] = dict(initial_weights(model, 0))
        np.savez(folder / "weights.npz", **weights)
        job = Job(model, workload, "cpu", "float32", tuple(variants))
        environment = worker_environment(spec, "cpu", threads, tuple(variants))
        with WorkerProcess(environment, folder / "log") as worker:
            try:
                worker.request(calls.load(spec.factory), _TIMEOUT_SECONDS)
                prepare = calls.prepare(job, str(folder / "weights.npz"), epoch, _STEPS)
                return worker.request(prepare, _TIMEOUT_SECONDS)
            except ConfigurationFailed as error:
                raise EngineUnavailable(f"the smoke test failed: {error}", "polybench doctor") from error
