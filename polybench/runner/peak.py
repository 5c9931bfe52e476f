"""Measures the peaks of this machine: matrix products, the network's convolutions, and memory bandwidth."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec
import numpy as np

from polybench.engines import ENGINES
from polybench.errors import BadInput, ConfigurationFailed
from polybench.machine import host
from polybench.machine.cores import last_level_cache_bytes
from polybench.networks.layers import Conv, Dense
from polybench.networks.model import Model
from polybench.networks.timed_layers import TimedLayer, split_layers
from polybench.planning.plan import Plan, resolve
from polybench.planning.schedule import TimingBlocks
from polybench.protocol import calls
from polybench.protocol.calls import NumpyKernels, NumpyTimed, OperationTime
from polybench.protocol.environment import worker_environment
from polybench.protocol.process import WorkerProcess
from polybench.results.peak import (
    Kernel,
    KernelTiming,
    build_peak_document,
    engine_timings,
    interrupted_peaks,
    merge_peaks,
    numpy_timings,
    square_shape,
    version_changes,
)
from polybench.runner.peak_cache import PeakCache, is_simulated
from polybench.runner.prepare import new_header, prepare
from polybench.runner.process_runs import ProcessRun, Workers, run_all
from polybench.runner.progress import Progress
from polybench.runner.scratch import scratch_folder
from polybench.runner.state import StudyState, make_run
from polybench.runner.workers import Environments, read_engine_info
from polybench.schema.measurements import PeakDocument
from polybench.schema.metadata import RoundInterference
from polybench.schema.options import Study
from polybench.schema.units import format_bytes

_ROUNDS = 6
"""Minimum and maximum of six rounds are an interval of the median; see `stats.statistics.median_interval`."""

_REPETITIONS = 3
"""Repetitions of each operation per round."""

MATRIX_SIZES: dict[str, tuple[int, ...]] = {"cpu": (768, 1024, 1536), "gpu": (2048, 4096, 8192)}
"""Sizes of square matrices; the smallest takes long enough to time, the largest fits the time budget."""

_LARGE_MATRIX, _LARGE_MATRIX_THREADS = 4096, 8
"""Matrix size to add if there are at least this many threads."""

_CACHE_MULTIPLE = 4
"""Size of each triad array in multiples of the last-level cache, as STREAM's rules require."""

_DEFAULT_CACHE_BYTES = 64 << 20


def run_peak(study: Study, progress: Progress, *, argv: Sequence[str] = (), remeasure: bool = False) -> PeakDocument:
    """Measure the peaks of each device and precision, or use cached peaks.

    Cached peaks are valid while the requested engines, and the engines that reached a peak, have the same
    versions. Ctrl-C returns the peaks measured so far, marked as interrupted.

    Args:
        study: its engines, devices, precisions, threads, network and batch size count.
        progress: receives progress reports.
        argv: the command line, for the document.
        remeasure: ignore cached peaks.

    Raises:
        BadInput: invalid arguments, before anything is started.
        KeyboardInterrupt: before anything was measured.
    """
    if "bf16" in study.precisions:
        raise BadInput("peaks cannot be measured in bf16: use --precision fp32 or tf32")
    devices = dict.fromkeys(configuration.device for configuration in resolve(study).configurations)
    documents: list[PeakDocument] = []
    for device in devices:
        for precision in study.precisions:
            peak_study = msgspec.structs.replace(
                study, devices=(device,), precision=precision, baseline=None, prices={}, data="synthetic",
                input="preload", parity=False, metrics=False, processes=1,
                rounds_per_process=_ROUNDS, steps_per_round=1,
            )  # fmt: skip
            try:
                cached = None if remeasure else _load_cached(peak_study, progress)
                documents.append(cached or _measure(peak_study, progress, argv))
            except KeyboardInterrupt:
                if not documents:
                    raise
                documents.append(interrupted_peaks(documents[-1], resolve(peak_study).configurations))
            if any(configuration.status == "interrupted" for configuration in documents[-1].configurations):
                return merge_peaks(documents)
    return merge_peaks(documents)


def _load_cached(study: Study, progress: Progress) -> PeakDocument | None:
    """Return cached peaks of the same engines, network, batch size and machine, if no version has changed."""
    cached = _find_cached(resolve(study))
    if cached is None:
        return None
    requested = {configuration.name for configuration in resolve(study).configurations}
    progress.on_stage("checking whether the cached peaks are up to date")
    changes = _version_changes(cached, requested, study)
    if changes:
        progress.on_warning(f"the cached peaks are outdated and are re-measured: {'; '.join(changes)}")
    return None if changes else cached


def _find_cached(plan: Plan) -> PeakDocument | None:
    (device,), workload = {configuration.device for configuration in plan.configurations}, plan.workload
    simulated = is_simulated(configuration.engine for configuration in plan.configurations)
    cached = PeakCache().find(
        host.this_host(), device, workload.precision, workload.threads, plan.study.malloc, simulated=simulated
    )
    if cached is None or (cached.model, cached.batch_size) != (plan.model.name, workload.batch_size):
        return None
    requested = {configuration.name for configuration in plan.configurations}
    measured = {peaks.configuration for peaks in cached.configurations}
    return cached if requested <= measured else None


def _version_changes(cached: PeakDocument, requested: Collection[str], study: Study) -> list[str]:
    """Describe version changes of the requested engines, and of those that reached a peak."""
    fastest = {peak.engine for peak in cached.peaks}
    relevant = {
        peaks.configuration: peaks
        for peaks in cached.configurations
        if peaks.configuration in requested or peaks.configuration.partition("/")[0] in fastest
    }
    names = tuple(configuration.partition("/")[0] for configuration in relevant)
    try:
        plan = resolve(msgspec.structs.replace(study, engines=names))
    except BadInput as error:  # a plug-in engine that is no longer installed
        return [str(error)]
    with scratch_folder() as scratch:
        environments = Environments(plan, scratch)
        runs = {
            configuration.name: make_run(configuration, plan, environments)
            for configuration in plan.configurations
            if configuration.name in relevant
        }
        read_engine_info(list(runs.values()), study.timeout)
    before = {configuration: peaks.versions for configuration, peaks in relevant.items()} | {
        "numpy": {"NumPy": cached.numpy}
    }
    now = {configuration: run.engine_info.versions if run.engine_info else {} for configuration, run in runs.items()}
    return version_changes(before, now | {"numpy": {"NumPy": np.__version__}})


def _measure(study: Study, progress: Progress, argv: Sequence[str]) -> PeakDocument:
    with prepare(resolve(study), progress, header=new_header(argv)) as prepared:
        state = prepared.state
        peak_timings = _make_timings(state)
        try:
            run_all(state, None, partial(_PeakRun, peak_timings))
        except KeyboardInterrupt:
            state.interrupt()
        finished = state.finish()
        configurations = [result.configuration for result in finished.results if result.status != "failed"]
        timings = [timing for configuration in configurations for timing in peak_timings.engine_timings(configuration)]
        model = state.plan.study.model
        document = build_peak_document(
            finished,
            [*timings, *peak_timings.numpy_timings()],
            np.__version__,
            network=model if isinstance(model, Model) else None,
        )
    PeakCache().save(document)
    return document


@dataclass
class _PeakTimings:
    """Kernels to time, and their seconds so far.

    Attributes:
        kernels: matrix products and convolutions.
        numpy_kernels: what NumPy times; None on a GPU, which NumPy does not use.
        engine_times: times by configuration, as [round][operation].
        numpy_times: one entry per round.
    """

    kernels: list[Kernel]
    numpy_kernels: NumpyKernels | None
    engine_times: dict[str, list[list[OperationTime]]] = field(default_factory=dict)
    numpy_times: list[NumpyTimed] = field(default_factory=list)

    def engine_timings(self, configuration: str) -> Iterator[KernelTiming]:
        engine = configuration.partition("/")[0]
        return engine_timings(engine, self.kernels, self.engine_times.get(configuration, []))

    def numpy_timings(self) -> Iterator[KernelTiming]:
        return numpy_timings(self.numpy_kernels, self.numpy_times)


def _make_timings(state: StudyState) -> _PeakTimings:
    plan, threads = state.plan, state.plan.workload.threads
    on_cpu = plan.configurations[0].device == "cpu"
    sizes = MATRIX_SIZES["cpu" if on_cpu else "gpu"]
    if on_cpu and threads >= _LARGE_MATRIX_THREADS:
        sizes = (*sizes, _LARGE_MATRIX)
    kernels = [*map(_product, sizes), *_convolutions(plan)]
    return _PeakTimings(kernels, NumpyKernels(sizes, _triad_bytes(state), threads, _REPETITIONS) if on_cpu else None)


def _product(size: int) -> Kernel:
    layer = TimedLayer("product", "product", (Dense("product", size, size),), (size,), needs_input_gradient=True)
    return Kernel("gemm", square_shape(size), layer, size)


def _convolutions(plan: Plan) -> Iterator[Kernel]:
    batch_size = plan.workload.batch_size
    for layer in split_layers(plan.model):
        if isinstance(conv := layer.layer, Conv):
            _, height, width = layer.input_shape
            kernel = f"{conv.kernel}x{conv.kernel} {conv.inputs}->{conv.outputs}"
            shape = f"{conv.name}: {kernel} on {height}x{width}, batch {batch_size}"
            yield Kernel("convolution", shape, layer, batch_size)


def _triad_bytes(state: StudyState) -> int | None:
    """Return the bytes of each triad array; None if they do not fit into memory next to the engines."""
    cache = last_level_cache_bytes(state.plan.workload.threads)
    if cache is None:
        state.warn(f"the size of the CPU caches is unknown: the triad assumes {format_bytes(_DEFAULT_CACHE_BYTES)}")
    array_bytes = _CACHE_MULTIPLE * (cache or _DEFAULT_CACHE_BYTES)
    if 3 * array_bytes > host.available_memory() // 2:
        state.warn(f"no triad: its three arrays of {format_bytes(array_bytes)} exceed half of the free memory")
        return None
    return array_bytes


class _PeakRun(ProcessRun):
    """Times every kernel once per round in each engine, then in NumPy; whole steps only set the pace."""

    reports_startup = False

    def __init__(self, timings: _PeakTimings, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._timings = timings

    def _warm_up(self, workers: Workers) -> None:
        super()._warm_up(workers)
        request = calls.build_standalone_ops([(kernel.layer, kernel.batch_size) for kernel in self._timings.kernels])
        for name in list(workers):
            _, worker = workers[name]
            self._state.progress.on_stage(f"building matrix products and convolutions of {name}")
            with self._record_failure(workers, name):
                worker.request(request, self._timeout)
                self._timings.engine_times[name] = []

    def _measure_block(self, workers: Workers, name: str, block: TimingBlocks) -> None:  # noqa: ARG002
        _, worker = workers[name]
        with self._record_failure(workers, name):
            timed = worker.request(calls.time_layer_ops(_REPETITIONS), self._timeout)
            self._timings.engine_times[name].append(timed)

    @contextlib.contextmanager
    def _start_workers(self) -> Iterator[Workers]:
        plan = self._state.plan
        environment = worker_environment(
            ENGINES["reference"], "cpu", plan.workload.threads, malloc=plan.study.malloc, cpus=plan.cpus
        )
        log = self._state.logs / "numpy.log"
        with WorkerProcess(environment, log) as self._numpy, super()._start_workers() as workers:
            yield workers

    def _run_round(self, workers: Workers, block: TimingBlocks, number: int) -> RoundInterference:
        interference = super()._run_round(workers, block, number)
        if self._timings.numpy_kernels is not None:
            start = time.monotonic()
            try:
                timed = self._numpy.request(calls.time_numpy(self._timings.numpy_kernels), self._timeout)
                self._timings.numpy_times.append(timed)
            except ConfigurationFailed as error:
                self._state.warn(f"cannot time NumPy: {error}")
                self._timings.numpy_kernels = None
            self._round_budget.spend(time.monotonic() - start)
        return interference
