"""Measures the peaks of this machine: matrix products, the network's convolutions, and memory bandwidth."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from polybench.engines import ENGINES
from polybench.errors import BadInput, ConfigurationFailed
from polybench.experiments.outcome import Outcome
from polybench.log import KernelsChosen, Log, NumpyTimed
from polybench.machine import host
from polybench.machine.cores import last_level_cache_bytes
from polybench.planning.plan import Plan, resolve
from polybench.planning.schedule import RoundBudget
from polybench.protocol import calls
from polybench.protocol.calls import NumpyKernels
from polybench.protocol.environment import worker_environment
from polybench.protocol.process import WorkerProcess
from polybench.results.peak import derive_peak, interrupted_peaks, kernels_of, merge_peaks
from polybench.run import run
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.peak_cache import PeakCache
from polybench.runner.prepare import header_of_command, new_header, new_log
from polybench.runner.process_runs import Operation, record_operations
from polybench.runner.progress import Progress
from polybench.runner.resume import unfinished_log
from polybench.runner.scratch import scratch_folder
from polybench.runner.session import Session
from polybench.runner.workers import list_changes, make_runs, version_changes
from polybench.schema.measurements import PeakDocument
from polybench.schema.options import Study
from polybench.schema.units import format_bytes
from polybench.storage.store import Store

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
    study: Study,
    progress: Progress,
    *,
    store: Store | None = None,
    argv: Sequence[str] = (),
    anonymous: bool = False,
    quick: bool = False,
    remeasure: bool = False,
) -> Outcome[PeakDocument]:
    """Measure the peaks of each device and precision, or use cached peaks unless `remeasure`.

    `store` gets the logs. A `quick` measurement has a short budget and is not cached. Cached peaks are valid while the
    requested engines, and the engines that reached a peak, have the same versions. Ctrl-C returns the peaks measured so
    far, marked as interrupted; before anything was measured, it raises KeyboardInterrupt. Only the study's
    engines, devices, precisions, threads, network and batch size have an effect.
    """
    if "bf16" in study.precisions:
        raise BadInput("peaks cannot be measured in bf16: use --precision fp32 or tf32")
    devices = dict.fromkeys(configuration.device for configuration in resolve(study).configurations)
    study = study.quick() if quick else study
    documents, measured = list[PeakDocument](), list[str]()
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
                if cached is None:
                    header = header_of_command(new_header(argv, anonymous=anonymous), "peak")
                    with new_log(peak_study, header, store) as log:
                        measured.append(header.id)
                        cached = _measure(peak_study, log, progress, store)
                documents.append(cached)
            except KeyboardInterrupt:
                if not documents:
                    raise
                documents.append(interrupted_peaks(documents[-1], resolve(peak_study).configurations))
            if any(configuration.status == "interrupted" for configuration in documents[-1].configurations):
                return Outcome(merge_peaks(documents), measured)
    return Outcome(merge_peaks(documents), measured)


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


def resume_peak(id: str, progress: Progress, *, store: Store, anonymous: bool = False) -> Outcome[PeakDocument]:
    """Measure the peaks of an interrupted or killed log again; errors are those of `resume_study`."""
    with unfinished_log(id, store, anonymous=anonymous) as (log, study):
        return Outcome(_measure(study, log, progress, store), [id])


def _measure(study: Study, log: Log, progress: Progress, store: Store | None) -> PeakDocument:
    """Measure one device and precision, and cache the peaks unless the budget is that of `quick`."""
    plan = resolve(study)
    environment = worker_environment(
        ENGINES["reference"], "cpu", plan.workload.threads, malloc=study.malloc, cpus=plan.cpus
    )
    with scratch_folder() as folder, WorkerProcess(environment, folder / "numpy.log") as numpy_worker:
        run(study, log, progress, store=store, operations=[_Kernels(numpy_worker)])
    document = derive_peak(log.events)
    if study != study.quick():
        # The cache keeps the host name, which is its key.
        PeakCache().save(msgspec.structs.replace(document, host=host.this_host()))
    return document


class _Kernels(Operation):
    """Matrix products and convolutions in each engine, and matrix products and the triad in NumPy, once per round."""

    def __init__(self, numpy_worker: WorkerProcess) -> None:
        self._numpy: WorkerProcess | None = numpy_worker

    def start(self, session: Session) -> None:
        """Choose the kernels; NumPy has none on a GPU."""
        self._session, plan = session, session.plan
        self._timeout, is_on_cpu = plan.study.timeout, plan.configurations[0].device == "cpu"
        if session.measured.kernels is None:
            triad_bytes = _triad_bytes(session) if is_on_cpu else None
            sizes = [*_matrix_sizes(plan)]
            session.record(KernelsChosen(matrix_sizes=sizes, triad_bytes=triad_bytes, numpy=np.__version__))
        chosen = session.measured.kernels
        assert chosen is not None
        kernels = kernels_of(chosen, plan.model, plan.workload.batch_size)
        self._build = calls.build_standalone_ops([(kernel.layer, kernel.batch_size) for kernel in kernels])
        threads = plan.workload.threads
        self._time_numpy = calls.time_numpy(
            NumpyKernels((*chosen.matrix_sizes,), chosen.triad_bytes, threads, _REPETITIONS)
        )
        if not is_on_cpu:
            self._numpy = None

    def build(self, run: ConfigurationRun, worker: WorkerProcess) -> None:
        """Build each kernel."""
        name = run.configuration.name
        self._session.progress.on_stage(f"building matrix products and convolutions of {name}")
        worker.request(self._build, self._timeout)

    def measure(self, run: ConfigurationRun, worker: WorkerProcess, budget: RoundBudget, steps: int) -> None:  # noqa: ARG002
        """Time each kernel."""
        record_operations(run, worker, _REPETITIONS, self._timeout)

    def end_round(self) -> None:
        """Time NumPy, unless it has failed."""
        if self._numpy is None:
            return
        try:
            times = self._numpy.request(self._time_numpy, self._timeout)
        except ConfigurationFailed as error:
            self._session.warn(f"cannot time NumPy: {error}", names=True)
            self._numpy = None
        else:
            process = self._session.measured.process_runs
            self._session.record(NumpyTimed(process=process, products=times.products, triad=times.triad))


def _matrix_sizes(plan: Plan) -> tuple[int, ...]:
    on_cpu = plan.configurations[0].device == "cpu"
    sizes = MATRIX_SIZES["cpu" if on_cpu else "gpu"]
    return (*sizes, _LARGE_MATRIX) if on_cpu and plan.workload.threads >= _LARGE_MATRIX_THREADS else sizes


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
