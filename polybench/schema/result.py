"""The results of one configuration."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from polybench.schema.options import EngineName, Workload
from polybench.schema.parity import UNCHECKED, ParityCheck
from polybench.schema.replicas import Communication, Scaling
from polybench.schema.resources import (
    Allocations,
    Cost,
    Energy,
    GarbageCollection,
    Interference,
    Memory,
    PeakComparison,
    Utilization,
)
from polybench.schema.times import (
    BaselineComparison,
    BreakEven,
    GpuSpeedup,
    MeanStepTime,
    Pipeline,
    Startup,
    StepTime,
    StepTimes,
)
from polybench.schema.training import AccuracyDifference, TimeToAccuracy, Training

Status = Literal["ok", "unavailable", "failed", "interrupted"]


class Result(msgspec.Struct, kw_only=True):
    """The results of one configuration. If it could not be measured, most fields are null.

    `accuracy` is the mean over complete trainings after the last epoch, `accuracy_std` its standard
    deviation.
    """

    configuration: str
    engine: str
    variant: str | None
    environment: str | None = None
    """The name of `--env`; null is the Python that runs polybench."""
    device: str
    workload: Workload
    world_size: int = 1
    """Processes of each worker: the number of replicas, if replicas are processes."""
    status: Status
    reason: str | None = None
    hint: str | None = None
    log_path: str | None = None
    warnings: list[str] = []
    versions: dict[str, Any] = {}
    step_time: StepTime | None = None
    mean_step_time: MeanStepTime | None = None
    items_per_second: float | None = None
    epoch_seconds: float | None = None
    startup: Startup | None = None
    python_call_overhead_seconds: float | None = None
    """Extra time of a call of the engine from Python, which no step time includes: for Flux the bridge to
    Julia, and the collections that `gc_off` runs between steps. The median over timing blocks."""
    break_even_steps: list[BreakEven] = []
    allocations: Allocations = Allocations()
    gc: GarbageCollection = GarbageCollection()
    pipeline: Pipeline | None = None
    memory: Memory = Memory()
    utilization: Utilization = Utilization()
    energy: Energy = Energy()
    interference: Interference = Interference()
    cost: Cost | None = None
    peak: PeakComparison | None = None
    parity: ParityCheck = UNCHECKED
    losses: list[float] = []
    accuracy: float | None = None
    accuracy_std: float | None = None
    accuracy_difference: AccuracyDifference | None = None
    time_to_accuracy: TimeToAccuracy | None = None
    trainings: list[Training] = []
    vs_baseline: BaselineComparison | None = None
    gpu_speedup: GpuSpeedup | None = None
    scaling: Scaling | None = None
    communication: Communication | None = None
    step_times: StepTimes | None = None

    @property
    def engine_name(self) -> str:
        """The engine as on the command line: `torch+compile@nightly`."""
        variants = tuple(self.variant.split("+")) if self.variant else ()
        return str(EngineName(self.engine, variants, self.environment))

    @property
    def nested_step_times(self) -> list[list[list[float]]]:
        """All step times in seconds, as [process][round][value]; empty if not measured."""
        return self.step_times.values if self.step_times else []

    @property
    def median_step_seconds(self) -> float:
        """Seconds of a typical step; the configuration must have been measured."""
        assert self.step_time is not None
        return self.step_time.median

    @property
    def is_measured(self) -> bool:
        """True if it has step times."""
        return self.step_time is not None

    @property
    def is_ranked(self) -> bool:
        """True if it was measured, did not fail, and did not fail its parity check."""
        return self.is_measured and self.status != "failed" and self.parity.status != "fail"
