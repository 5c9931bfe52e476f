"""Synthetic documents with data for every figure."""

from __future__ import annotations

import msgspec

from polybench.analysis.history import build_history
from polybench.schema.analyses import HistoryDocument
from polybench.schema.measurements import (
    ConfigurationOverhead,
    Curve,
    LayersDocument,
    OverheadDocument,
    OverheadIntervals,
    OverheadPoint,
    PeakDocument,
    PeakKind,
    PeakMeasurement,
    PointReference,
    PointResult,
    SweepDocument,
    SweepPoint,
)
from polybench.schema.resources import Allocation, Allocations, Cost, PeakComparison
from polybench.schema.result import BaselineComparison, ColdStart, StepTimes, TimeToAccuracy
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import ratio, summarize_step_times
from tests.factories import layers, measured, native_allocation, step_times_around, study, trainings, unmeasured

CONFIGURATIONS = {"torch/cpu": (0.0100, 2.0), "tf/cpu": (0.0080, 7.0), "flux/cpu": (0.0350, 18.0)}
"""Seconds of a typical step and of the first step."""


def full_study(*, processes: int = 3, rounds: int = 2) -> StudyDocument:
    """Create three complete results, one that fails the parity check, and one without times."""
    results = []
    baseline_times = step_times_around(0.0100, processes, rounds)
    for number, (configuration, (step, first)) in enumerate(CONFIGURATIONS.items()):
        times = step_times_around(step, processes, rounds)
        comparison = ratio(baseline_times, times)
        interval = None if configuration == "torch/cpu" else comparison.ci95
        results.append(
            measured(
                configuration,
                step,
                step_time=summarize_step_times(times, "step"),
                step_times=StepTimes("step", 1, times),
                vs_baseline=BaselineComparison("torch/cpu", comparison.speedup, interval, comparison.scope),
                startup=ColdStart(0.05, 1.0, 0.2, 0.1, first, 2 * step),
                cost=Cost(390 * step * 0.24 / 3600, step / 0.01),
                allocations=Allocations(
                    host=Allocation(12, 3e6 * (1 + number), "profiler", "tensors"),
                    native=native_allocation(6e6 * (1 + number)) if configuration != "tf/cpu" else None,
                ),
                trainings=trainings(0.5, 0.6),
                versions={"torch": "2.13.0", "build": {"blas": "mkl"}},
            )
        )
    results[0].time_to_accuracy = TimeToAccuracy(0.55, 3.0, 1, 2)
    differs = msgspec.structs.replace(
        measured("tf+keras_fit/cpu", 0.1),
        parity=msgspec.structs.replace(results[0].parity, status="fail", reason="loss 3.1e-2 from the reference"),
    )
    unavailable = unmeasured("torch/cuda", "unavailable", "no CUDA device is visible to PyTorch", "install a driver")
    return study(*results, differs, unavailable)


def full_layers(of: StudyDocument) -> LayersDocument:
    """Create two layers and the loss of two configurations; operations of tf exceed its step time."""
    times = {
        "torch/cpu": {("conv1", "forward"): 2e-3, ("conv1", "weight gradient"): 3e-3, ("step", "loss"): 1e-4},
        "tf/cpu": {("conv1", "forward"): 9e-3, ("dense1", "forward"): 1e-3, ("step", "loss"): 2e-4},
    }
    return layers(of, {"torch/cpu": 0.010, "tf/cpu": 0.008}, times)  # type: ignore[arg-type]


def full_sweep() -> SweepDocument:
    """Create a sweep over three thread counts, of which the last is oversubscribed."""
    template = study()

    def result(rate: float, *interval: float) -> PointResult:
        ci95 = (interval[0], interval[1]) if interval else None
        return PointResult("torch/cpu", "ok", None, 1e-2, rate, rate / 100.0, ci95)

    points = [(1, result(100.0)), (2, result(180.0, 1.7, 1.9)), (4, result(190.0, 1.8, 2.0))]
    return SweepDocument(
        id="sweep-20250101-000000-abcd",
        created=template.created,
        polybench=template.polybench,
        argv=[],
        model="lenet",
        host=template.host,
        axes={"threads": [1, 2, 4]},
        points=[SweepPoint({"threads": threads}, "x", threads > 2, [one]) for threads, one in points],
        curves=[Curve("torch/cpu", {"threads": 4}, 190.0, [])],
        fastest=[PointReference("torch/cpu", {"threads": 4})],
    )


def full_history() -> HistoryDocument:
    """Create four studies, of which the last two are slower."""
    studies = [
        msgspec.structs.replace(full_study(), id=f"2025010{day}-000000-abcd", created=f"2025-01-0{day}T00:00:00Z")
        for day in (1, 2, 3, 4)
    ]
    for one in studies[2:]:
        one.results[0] = measured("torch/cpu", 0.02, versions={"torch": "2.14.0"})
    return build_history(reversed(studies))


def full_overhead() -> OverheadDocument:
    """Create two batch sizes with a fit, and a configuration without times."""
    template = study()
    fitted = ConfigurationOverhead(
        configuration="torch/cpu", engine="torch", variant=None, device="cpu", status="ok",
        overhead_seconds=2e-3, seconds_per_item=1e-4,
        ci95=OverheadIntervals((1.5e-3, 2.5e-3), (0.9e-4, 1.1e-4)),
        points=[OverheadPoint(1, 2.1e-3, (2e-3, 2.3e-3)), OverheadPoint(64, 8.4e-3, None)],
    )  # fmt: skip
    unavailable = ConfigurationOverhead(
        configuration="tf/cpu", engine="tf", variant=None, device="cpu", status="unavailable", reason="no tf"
    )
    return OverheadDocument(
        id="overhead-20250101-000000-abcd",
        created=template.created,
        polybench=template.polybench,
        argv=[],
        model="lenet",
        threads=2,
        host=template.host,
        configurations=[fitted, unavailable],
    )


def full_peak() -> PeakDocument:
    """Create the three kinds of peaks."""
    template = study()

    def peak(kind: PeakKind, value: float) -> PeakMeasurement:
        is_memory = kind == "memory_bandwidth"
        return PeakMeasurement(
            device="cpu", precision=None if is_memory else "fp32", threads=2, kind=kind, value=value,
            unit="B/s" if is_memory else "FLOP/s", engine="torch", shape="x", ci95=None, drift=0.0,
            cpu_contention=0.0, measured_at=template.created,
        )  # fmt: skip

    return PeakDocument(
        created=template.created,
        polybench=template.polybench,
        argv=[],
        model="lenet",
        batch_size=128,
        threads=2,
        malloc="retain",
        host=template.host,
        peaks=[peak("gemm", 1e11), peak("convolution", 8e10), peak("memory_bandwidth", 1e10)],
        configurations=[],
    )


def with_peaks(document: LayersDocument) -> LayersDocument:
    """Add peaks, and FLOPs and bytes for all layers."""
    peak = PeakComparison(1e11, 0.3, "matrix product", convolution_flops_per_second=8e10, bytes_per_second=1e10)
    configurations = [
        msgspec.structs.replace(
            one,
            peak=peak,
            rows=[
                row if row.layer == "step" else msgspec.structs.replace(row, flops=10**8, min_bytes_moved=10**7)
                for row in one.rows
            ],
        )
        for one in document.configurations
    ]
    return msgspec.structs.replace(document, configurations=configurations)
