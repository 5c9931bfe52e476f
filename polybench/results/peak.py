"""Computes the peaks from their log: the fastest measurement of each kind. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import msgspec

from polybench.log import AnyEvent, KernelsChosen, NumpyTimed
from polybench.networks import find_model
from polybench.networks.layers import Conv, Dense
from polybench.networks.model import Model
from polybench.networks.timed_layers import TimedLayer, split_layers
from polybench.planning.study_file import stored_study
from polybench.protocol.calls import OperationTime
from polybench.results.document import damage_named, derive_measured, within_bounds
from polybench.results.measured import measured_study
from polybench.schema import units
from polybench.schema.measurements import MAX_DRIFT, ConfigurationPeaks, PeakDocument, PeakKind, PeakMeasurement
from polybench.schema.options import Configuration, Workload
from polybench.schema.result import library_versions, status_fields
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


def kernels_of(chosen: KernelsChosen, model: Model, batch_size: int) -> list[Kernel]:
    """Return the kernels of a log in their order."""
    return [*map(_product, chosen.matrix_sizes), *_convolutions(model, batch_size)]


def _product(size: int) -> Kernel:
    layer = TimedLayer("product", "product", (Dense("product", size, size),), (size,), needs_input_gradient=True)
    return Kernel("gemm", square_shape(size), layer, size)


def _convolutions(model: Model, batch_size: int) -> Iterator[Kernel]:
    for layer in split_layers(model):
        if isinstance(conv := layer.layer, Conv):
            _, height, width = layer.input_shape
            kernel = f"{conv.kernel}x{conv.kernel} {conv.inputs}->{conv.outputs}"
            shape = f"{conv.name}: {kernel} on {height}x{width}, batch {batch_size}"
            yield Kernel("convolution", shape, layer, batch_size)


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


def numpy_timings(chosen: KernelsChosen, rounds: Sequence[NumpyTimed]) -> Iterator[KernelTiming]:
    """Yield NumPy's matrix products and the STREAM triad; nothing if NumPy was not timed."""
    if not rounds:
        return
    for size, *seconds in zip(chosen.matrix_sizes, *(one.products for one in rounds), strict=True):
        yield KernelTiming("gemm", NUMPY, square_shape(size), 2 * size**3, seconds)
    triads = [one.triad for one in rounds if one.triad is not None]
    if chosen.triad_bytes is not None and triads:
        shape = f"3 arrays of {units.format_bytes(chosen.triad_bytes)}"
        yield KernelTiming("memory_bandwidth", NUMPY, shape, 3 * chosen.triad_bytes, triads)


def square_shape(size: int) -> str:
    """Describe a product of square matrices: `512x512x512`."""
    return f"{size}x{size}x{size}"


def derive_peak(events: Iterable[AnyEvent], *, salvage: bool = False) -> PeakDocument:
    """Compute the peaks of a log; raises DamagedLog as `derive`."""
    measured = measured_study(events, salvage=salvage)
    study, header, chosen = derive_measured(measured), measured.header, measured.kernels
    assert header is not None
    timings: list[KernelTiming] = []
    with damage_named(header.id):
        network = stored_study(header.study, header.id).model
        if chosen is not None:
            kernels = kernels_of(chosen, find_model(network), study.settings.batch_size)
            for result, run in zip(study.results, measured.runs, strict=True):
                if result.status != "failed":
                    rounds = [one for process in run.operations for one in process]
                    timings += engine_timings(result.configuration.partition("/")[0], kernels, rounds)
            timings += numpy_timings(chosen, measured.numpy)
        document = build_peak_document(
            study, timings, chosen.numpy if chosen else None, network if isinstance(network, Model) else None
        )
    return within_bounds(document)


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
