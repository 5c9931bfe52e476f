"""Made-up documents that have something for every figure: none of these numbers was measured."""

from __future__ import annotations

import msgspec

from polybench.core.document.history import HistoryDocument
from polybench.core.document.layers import LayersDocument
from polybench.core.document.limit import Kind, LimitDocument, MeasuredRoof
from polybench.core.document.overhead import (
    EngineOverhead,
    OverheadDocument,
    OverheadIntervals,
    OverheadPoint,
)
from polybench.core.document.resources import Allocation, Allocations, Cost, Roof
from polybench.core.document.study import StudyDocument
from polybench.core.document.sweep import Curve, SweepDocument, SweepPoint, SweptCell
from polybench.core.document.times import Relative, Samples, Startup
from polybench.core.document.training import TimeToAccuracy
from polybench.core.statistics import ratio, step_seconds
from polybench.report.history import history
from tests.factories import absent, layers, measured, native, samples, study, trainings

CELLS = {"torch/cpu": (0.0100, 2.0), "tf/cpu": (0.0080, 7.0), "flux/cpu": (0.0350, 18.0)}
"""Seconds of a step, and of the first one."""


def full_study(*, processes: int = 3, rounds: int = 2) -> StudyDocument:
    """Three cells with everything, one that differs, and one without times."""
    results = []
    base = samples(0.0100, processes, rounds)
    for number, (cell, (step, first)) in enumerate(CELLS.items()):
        times = samples(step, processes, rounds)
        found = ratio(base, times)
        interval = None if cell == "torch/cpu" else found.interval95
        results.append(
            measured(
                cell,
                step,
                step_seconds=step_seconds(times, "step"),
                samples=Samples("step", 1, times),
                relative=Relative("torch/cpu", found.value, interval, found.scope),
                startup=Startup(0.05, 1.0, 0.2, 0.1, first, 2 * step),
                cost=Cost(390 * step * 0.24 / 3600, step / 0.01),
                allocations=Allocations(
                    host=Allocation(12, 3e6 * (1 + number), "profiler", "tensors"),
                    native=native(6e6 * (1 + number)) if cell != "tf/cpu" else None,
                ),
                trainings=trainings(0.5, 0.6),
                versions={"torch": "2.13.0", "build": {"blas": "mkl"}},
            )
        )
    results[0].time_to_accuracy = TimeToAccuracy(0.55, 3.0, 1, 2)
    differs = msgspec.structs.replace(
        measured("tf+keras_fit/cpu", 0.1),
        parity=msgspec.structs.replace(
            results[0].parity, status="fail", reason="loss 3.1e-2 from the reference"
        ),
    )
    gone = absent("torch/cuda", "unavailable", "no CUDA device is visible to PyTorch", "install a driver")
    return study(*results, differs, gone)


def full_layers(of: StudyDocument) -> LayersDocument:
    """Two layers and the loss of two cells; the parts of the second take longer than its step."""
    parts = {
        "torch/cpu": {("conv1", "forward"): 2e-3, ("conv1", "weight gradient"): 3e-3, ("step", "loss"): 1e-4},
        "tf/cpu": {("conv1", "forward"): 9e-3, ("dense1", "forward"): 1e-3, ("step", "loss"): 2e-4},
    }
    return layers(of, {"torch/cpu": 0.010, "tf/cpu": 0.008}, parts)  # type: ignore[arg-type]


def full_sweep() -> SweepDocument:
    """Three numbers of threads, the last of which is more than there are cores for."""
    told = study()

    def cell(rate: float, *interval: float) -> SweptCell:
        known = (interval[0], interval[1]) if interval else None
        return SweptCell("torch/cpu", "ok", None, 1e-2, rate, rate / 100.0, known)

    points = [(1, cell(100.0)), (2, cell(180.0, 1.7, 1.9)), (4, cell(190.0, 1.8, 2.0))]
    return SweepDocument(
        id="sweep-20250101-000000-abcd",
        created=told.created,
        polybench=told.polybench,
        argv=[],
        model="lenet",
        host=told.host,
        axes={"threads": [1, 2, 4]},
        points=[SweepPoint({"threads": number}, "x", number > 2, [one]) for number, one in points],
        curves=[Curve("torch/cpu", {"threads": 4}, 190.0)],
    )


def full_history() -> HistoryDocument:
    """Four studies, of which the last two are slower."""
    studies = [
        msgspec.structs.replace(
            full_study(), id=f"2025010{day}-000000-abcd", created=f"2025-01-0{day}T00:00:00Z"
        )
        for day in (1, 2, 3, 4)
    ]
    for one in studies[2:]:
        one.results[0] = measured("torch/cpu", 0.02, versions={"torch": "2.14.0"})
    return history(reversed(studies), {})


def full_overhead() -> OverheadDocument:
    """Two batch sizes of one cell, the line through them, and a cell without times."""
    told = study()
    line = EngineOverhead(
        cell="torch/cpu", engine="torch", variant=None, device="cpu", status="ok",
        fixed_seconds=2e-3, seconds_per_sample=1e-4,
        intervals=OverheadIntervals((1.5e-3, 2.5e-3), (0.9e-4, 1.1e-4)),
        points=[OverheadPoint(1, 2.1e-3, (2e-3, 2.3e-3)), OverheadPoint(64, 8.4e-3, None)],
    )  # fmt: skip
    gone = EngineOverhead(
        cell="tf/cpu", engine="tf", variant=None, device="cpu", status="unavailable", reason="no tf"
    )
    return OverheadDocument(
        id="overhead-20250101-000000-abcd",
        created=told.created,
        polybench=told.polybench,
        argv=[],
        model="lenet",
        threads=2,
        host=told.host,
        engines=[line, gone],
    )


def full_limit() -> LimitDocument:
    """A product, a convolution and memory."""
    told = study()

    def roof(kind: Kind, value: float) -> MeasuredRoof:
        memory = kind == "triad"
        return MeasuredRoof(
            device="cpu", precision=None if memory else "fp32", threads=2, kind=kind, value=value,
            unit="B/s" if memory else "FLOP/s", engine="torch", shape="x", interval95=None, change=0.0,
            others=0.0, measured=told.created,
        )  # fmt: skip

    return LimitDocument(
        created=told.created,
        polybench=told.polybench,
        argv=[],
        model="lenet",
        batch_size=128,
        threads=2,
        heap="keep",
        host=told.host,
        roofs=[roof("gemm", 1e11), roof("convolution", 8e10), roof("triad", 1e10)],
        engines=[],
    )


def with_roofs(document: LayersDocument) -> LayersDocument:
    """The same, of cells for which roofs are kept: all that multiplies has FLOP and bytes."""
    roof = Roof(1e11, 0.3, "a product", convolution_flops_per_second=8e10, bytes_per_second=1e10)
    engines = [
        msgspec.structs.replace(
            engine,
            roof=roof,
            rows=[
                row
                if row.layer == "step"
                else msgspec.structs.replace(row, flop=10**8, compulsory_bytes=10**7)
                for row in engine.rows
            ],
        )
        for engine in document.engines
    ]
    return msgspec.structs.replace(document, engines=engines)
