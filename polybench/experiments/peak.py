"""Measures the peaks of this machine: matrix products, the network's convolutions, and memory bandwidth."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

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
from polybench.planning.schedule import RoundBudget
from polybench.protocol import calls
from polybench.protocol.calls import NumpyKernels, NumpyTimed, OperationTime
from polybench.protocol.environment import worker_environment
from polybench.protocol.process import WorkerProcess
from polybench.results.peak import (
    Kernel,
    build_peak_document,
    engine_timings,
    interrupted_peaks,
    merge_peaks,
    numpy_timings,
    square_shape,
)
from polybench.run import run_study
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.peak_cache import PeakCache
from polybench.runner.prepare import new_header
from polybench.runner.process_runs import Operation
from polybench.runner.progress import Progress
from polybench.runner.scratch import scratch_folder
from polybench.runner.session import Session
from polybench.runner.workers import list_changes, make_runs, version_changes
from polybench.schema.measurements import PeakDocument
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


def run_peak(
    study: Study, progress: Progress, *, argv: Sequence[str] = (), quick: bool = False, remeasure: bool = False
) -> PeakDocument:
    """Measure the peaks of each device and precision, or use cached peaks unless `remeasure`.

    A `quick` measurement has a short budget and is not cached. Cached peaks are valid while the requested engines,
    and the engines that reached a peak, have the same versions. Ctrl-C returns the peaks measured so far, marked as
    interrupted; before anything was measured, it raises KeyboardInterrupt. Of the study count engines, devices,
    precisions, threads, network and batch size.
    """
    if "bf16" in study.precisions:
        raise BadInput("peaks cannot be measured in bf16: use --precision fp32 or tf32")
    devices = dict.fromkeys(configuration.device for configuration in resolve(study).configurations)
    study = study.quick() if quick else study
    documents: list[PeakDocument] = []
    for device in devices:
        for precision in study.precisions:
            peak_study = msgspec.structs.replace(
                study, devices=(device,), precision=precision, baseline=None, prices={}, data="synthetic",
                input="preload", parity=False, metrics=False, processes=1,
                epochs=None, accuracy=False, target_accuracy=None, target_loss=None,
                rounds_per_process=_ROUNDS, steps_per_round=1,
            )  # fmt: skip
            try:
                cached = None if remeasure else _load_cached(peak_study, progress)
                documents.append(cached or _measure(peak_study, progress, argv))
                if not cached and not quick:
                    PeakCache().save(documents[-1])
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
    engines = [configuration.engine for configuration in plan.configurations]
    cached = PeakCache().find(host.this_host(), plan.study.malloc, engines, device, workload)
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
        saved = [
            (relevant[run.configuration.name].versions, run)
            for run in make_runs(plan, scratch)
            if run.configuration.name in relevant
        ]
        changes = version_changes(saved, study.timeout)
    return [*changes, *list_changes({"NumPy": cached.numpy}, {"NumPy": np.__version__})]


def _measure(study: Study, progress: Progress, argv: Sequence[str]) -> PeakDocument:
    plan = resolve(study)
    environment = worker_environment(
        ENGINES["reference"], "cpu", plan.workload.threads, malloc=study.malloc, cpus=plan.cpus
    )
    with scratch_folder() as folder, WorkerProcess(environment, folder / "numpy.log") as numpy_worker:
        kernels, numpy_kernels = _Kernels(), _NumpyKernels(numpy_worker)
        finished = run_study(study, progress, store=None, header=new_header(argv), operations=[kernels, numpy_kernels])
    timings = [
        timing
        for result in finished.results
        if result.status != "failed" and not result.busy
        for timing in engine_timings(
            result.configuration.partition("/")[0], kernels.kernels, kernels.times.get(result.configuration, [])
        )
    ]
    return build_peak_document(
        finished,
        [*timings, *numpy_timings(numpy_kernels.request, numpy_kernels.times)],
        np.__version__,
        network=study.model if isinstance(study.model, Model) else None,
    )


class _Kernels(Operation):
    """Matrix products and convolutions in each engine; whole steps only set the pace.

    Attributes:
        kernels: what is timed, once the study has started.
        times: by configuration, as [round][operation].
    """

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []
        self.times: dict[str, list[list[OperationTime]]] = {}

    def start(self, session: Session) -> None:
        """Choose the kernels."""
        self._session, self._timeout = session, session.plan.study.timeout
        self.kernels = [*map(_product, _matrix_sizes(session.plan)), *_convolutions(session.plan)]

    def build(self, run: ConfigurationRun, worker: WorkerProcess) -> None:
        """Build each kernel."""
        name = run.configuration.name
        self._session.progress.on_stage(f"building matrix products and convolutions of {name}")
        kernels = [(kernel.layer, kernel.batch_size) for kernel in self.kernels]
        worker.request(calls.build_standalone_ops(kernels), self._timeout)
        self.times[name] = []

    def measure(self, run: ConfigurationRun, worker: WorkerProcess, budget: RoundBudget, steps: int) -> None:  # noqa: ARG002
        """Time each kernel."""
        self.times[run.configuration.name].append(worker.request(calls.time_layer_ops(_REPETITIONS), self._timeout))


class _NumpyKernels(Operation):
    """Matrix products and the triad in NumPy, once per round.

    Attributes:
        request: what NumPy times; None on a GPU, which NumPy does not use, and after a failure.
        times: one entry per round.
    """

    relative_cost = 0.0

    def __init__(self, worker: WorkerProcess) -> None:
        self.request: NumpyKernels | None = None
        self.times: list[NumpyTimed] = []
        self._worker = worker

    def start(self, session: Session) -> None:
        """Choose the kernels."""
        self._session, plan = session, session.plan
        if plan.configurations[0].device == "cpu":
            threads = plan.workload.threads
            self.request = NumpyKernels(_matrix_sizes(plan), _triad_bytes(session), threads, _REPETITIONS)

    def end_round(self) -> None:
        """Time the kernels."""
        if self.request is None:
            return
        try:
            self.times.append(self._worker.request(calls.time_numpy(self.request), self._session.plan.study.timeout))
        except ConfigurationFailed as error:
            self._session.warn(f"cannot time NumPy: {error}", names=True)
            self.request = None


def _matrix_sizes(plan: Plan) -> tuple[int, ...]:
    on_cpu = plan.configurations[0].device == "cpu"
    sizes = MATRIX_SIZES["cpu" if on_cpu else "gpu"]
    return (*sizes, _LARGE_MATRIX) if on_cpu and plan.workload.threads >= _LARGE_MATRIX_THREADS else sizes


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


def _triad_bytes(session: Session) -> int | None:
    """Return the bytes of each triad array; None if they do not fit into memory next to the engines."""
    cache = last_level_cache_bytes(session.plan.workload.threads)
    if cache is None:
        session.warn(f"the size of the CPU caches is unknown: the triad assumes {format_bytes(_DEFAULT_CACHE_BYTES)}")
    array_bytes = _CACHE_MULTIPLE * (cache or _DEFAULT_CACHE_BYTES)
    if 3 * array_bytes > host.available_memory() // 2:
        session.warn(f"no triad: its three arrays of {format_bytes(array_bytes)} exceed half of the free memory")
        return None
    return array_bytes
