"""Selects the fastest measurement of each kind of peak. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from polybench.networks.model import Model
from polybench.networks.timed_layers import TimedLayer
from polybench.protocol.calls import NumpyKernels, NumpyTimed, OperationTime
from polybench.results.comparisons import device_count
from polybench.schema import units
from polybench.schema.measurements import MAX_DRIFT, ConfigurationPeaks, PeakDocument, PeakKind, PeakMeasurement
from polybench.schema.options import Configuration, Workload
from polybench.schema.resources import PeakComparison
from polybench.schema.result import Result, library_versions, status_fields
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import median_interval

NUMPY = "numpy"


class Kernel(NamedTuple):
    """A matrix product or convolution whose operations engines time alone, for a batch.

    `shape` describes it for users.
    """

    kind: PeakKind
    shape: str
    layer: TimedLayer
    batch_size: int


class KernelTiming(NamedTuple):
    """Seconds of one kernel in one engine, by round; `work` is in FLOP or bytes."""

    kind: PeakKind
    engine: str
    shape: str
    work: int
    seconds: Sequence[float]

    @property
    def rates(self) -> list[float]:
        """Return the work per second of each round."""
        return [self.work / seconds for seconds in self.seconds]


def engine_timings(
    engine: str, kernels: Sequence[Kernel], rounds: Sequence[Sequence[OperationTime]]
) -> Iterator[KernelTiming]:
    """Yield forward pass and both gradients of each kernel. All rounds have the same operations in order."""
    for number, timed in enumerate(rounds[0] if rounds else ()):
        (index,) = timed.layers
        kernel = kernels[index]
        flops = kernel.layer.flops(timed.operation, kernel.batch_size)
        seconds = [operations[number].seconds for operations in rounds]
        if flops is not None and min(seconds) > 0:
            yield KernelTiming(kernel.kind, engine, f"{kernel.shape}, {timed.operation}", flops, seconds)


def numpy_timings(kernels: NumpyKernels | None, rounds: Sequence[NumpyTimed]) -> Iterator[KernelTiming]:
    """Yield NumPy's matrix products and the STREAM triad; nothing if NumPy was not timed."""
    if kernels is None or not rounds:
        return
    for size, *seconds in zip(kernels.sizes, *(one.products for one in rounds), strict=True):
        yield KernelTiming("gemm", NUMPY, square_shape(size), 2 * size**3, seconds)
    triads = [one.triad for one in rounds if one.triad is not None]
    if kernels.triad_bytes is not None and triads:
        shape = f"3 arrays of {units.format_bytes(kernels.triad_bytes)}"
        yield KernelTiming("memory_bandwidth", NUMPY, shape, 3 * kernels.triad_bytes, triads)


def square_shape(size: int) -> str:
    """Describe a product of square matrices: `512x512x512`."""
    return f"{size}x{size}x{size}"


def build_peak_document(
    study: StudyDocument, timings: Iterable[KernelTiming], numpy: str | None = None, network: Model | None = None
) -> PeakDocument:
    """Select the fastest timing of each kind by its median over rounds.

    The study has one device and one precision. `network` is None for a built-in model.
    """
    settings = study.settings
    fastest: dict[PeakKind, KernelTiming] = {}
    for timing in timings:
        best = fastest.get(timing.kind, timing)
        fastest[timing.kind] = max(best, timing, key=lambda one: median(one.rates))
    peaks = [_peak(timing, study) for timing in fastest.values()]
    return PeakDocument(
        **study.header(),
        model=settings.model,
        network=network,
        batch_size=settings.batch_size,
        threads=settings.threads,
        malloc=settings.malloc,
        numpy=numpy,
        interference=study.interference,
        peaks=peaks,
        configurations=[
            ConfigurationPeaks(**status_fields(result), versions=library_versions(result.versions))
            for result in study.results
        ],
        warnings=[*study.warnings, *_unstable_warnings(peaks, study)],
    )


def merge_peaks(documents: Sequence[PeakDocument]) -> PeakDocument:
    """Merge the documents of several devices and precisions; at least one."""
    return msgspec.structs.replace(
        documents[-1],
        peaks=[peak for document in documents for peak in document.peaks],
        configurations=[one for document in documents for one in document.configurations],
        warnings=list(dict.fromkeys(text for document in documents for text in document.warnings)),
    )


def interrupted_peaks(last: PeakDocument, configurations: Iterable[Configuration]) -> PeakDocument:
    """Return a document of configurations that were not measured because of an interruption after `last`."""
    interrupted = [
        ConfigurationPeaks(
            configuration=configuration.name,
            engine=configuration.engine,
            variant=configuration.variant,
            device=configuration.device,
            status="interrupted",
            reason="interrupted before its first measurement",
            hint="run the command again; finished measurements are cached",
        )
        for configuration in configurations
    ]
    warnings = ["interrupted: only finished measurements are shown"]
    return msgspec.structs.replace(last, peaks=[], configurations=interrupted, warnings=warnings)


def _peak(timing: KernelTiming, study: StudyDocument) -> PeakMeasurement:
    rates, is_bandwidth = timing.rates, timing.kind == "memory_bandwidth"
    device, threads = study.results[0].device, study.settings.threads
    return PeakMeasurement(
        device=device,
        precision=None if is_bandwidth else study.settings.precision,
        threads=threads,
        kind=timing.kind,
        value=median(rates),
        unit="B/s" if is_bandwidth else "FLOP/s",
        engine=timing.engine,
        shape=timing.shape,
        ci95=median_interval(rates),
        drift=rates[-1] / rates[0] - 1 if len(rates) > 1 else None,
        cpu_contention=_cpu_contention(study, threads) if device == "cpu" else 0.0,
        measured_at=study.created,
    )


def _cpu_contention(study: StudyDocument, threads: int) -> float:
    """Return the fraction of these threads' cores that other programs used, beyond the free cores."""
    used = [(one.other_cpu_percent + one.steal_percent) / 100 for one in study.interference]
    free = max(0, study.host.cores - threads)
    return max(0.0, median(used) - free) / threads if used else 0.0


def _unstable_warnings(peaks: Iterable[PeakMeasurement], study: StudyDocument) -> Iterator[str]:
    is_mostly_steal = sum(one.steal_percent - one.other_cpu_percent for one in study.interference) > 0
    others = "other machines of the hypervisor" if is_mostly_steal else "other programs"
    for peak in peaks:
        if peak.kind != "gemm" or peak.is_stable:
            continue
        if peak.drift is None:
            reason = "there was only one round"
        elif peak.cpu_contention > MAX_DRIFT:
            reason = f"{others} used {peak.cpu_contention:.0%} of the cores (at most {MAX_DRIFT:.0%} allowed)"
        else:
            reason = f"throughput changed by {peak.drift:+.0%} from the first to the last round"
            reason += f" (at most {MAX_DRIFT:.0%} allowed)"
        yield (
            f"{peak.device}, {peak.precision}: unstable peak: {reason}; polybench neither caches it nor shows"
            " percentages of it; measure again on an idle machine"
        )


def comparable_peaks(
    document: PeakDocument, engine: str, versions: Mapping[str, str], workload: Workload
) -> list[PeakMeasurement]:
    """Return the peaks with which a configuration may be compared.

    A peak that was measured with other versions of the engine does not count, nor do convolutions of another workload.
    """
    measured = [peaks.versions for peaks in document.configurations if peaks.engine == engine and peaks.status == "ok"]
    if measured and versions not in measured:
        return []
    same_workload = (document.model, document.batch_size) == (workload.model, workload.batch_size)
    return [peak for peak in document.peaks if same_workload or peak.kind != "convolution"]


def compare_with_peak(result: Result, model: Model, peaks: Sequence[PeakMeasurement]) -> PeakComparison | None:
    """Return the fraction of this machine's peak that a measured configuration reaches."""
    peaks_by_kind = {peak.kind: peak for peak in peaks}
    product, convolution, triad = (peaks_by_kind.get(kind) for kind in ("gemm", "convolution", "memory_bandwidth"))
    is_of_one_device = device_count(result) == 1
    if product is None or result.step_time is None or not result.is_ranked or not is_of_one_device:
        return None
    workload = result.workload
    conditions = f"{product.engine} on {product.device} in {product.precision}"
    return PeakComparison(
        flops_per_second=product.value,
        fraction=2 * model.macs(workload.pass_) * workload.batch_size / result.step_time.mean / product.value,
        source=f"{product.shape}, {conditions}; polybench peak, {product.measured_at.partition('T')[0]}",
        convolution_flops_per_second=convolution.value if convolution else None,
        bytes_per_second=triad.value if triad else None,
    )
