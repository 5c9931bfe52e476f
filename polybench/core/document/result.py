"""What one cell gave, all subjects together."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from polybench.core.document.identity import UNCHECKED, Parity
from polybench.core.document.replicas import Communication, Scaling
from polybench.core.document.resources import (
    Allocations,
    Cost,
    Disturbance,
    Energy,
    GarbageCollection,
    Memory,
    Roof,
    Utilization,
)
from polybench.core.document.times import (
    BlockMeans,
    BreakEven,
    DeviceSpeedup,
    Pipeline,
    Relative,
    Samples,
    Startup,
    StepSeconds,
)
from polybench.core.document.training import AccuracyDifference, TimeToAccuracy, Training
from polybench.core.names import EngineName
from polybench.core.spec import Workload

Status = Literal["ok", "unavailable", "failed", "interrupted"]


class Result(msgspec.Struct, kw_only=True):
    """What one cell gave. A cell that could not be measured has a status, a reason and mostly nulls.

    `accuracy` is the mean over complete trainings, after the last epoch, `accuracy_std` its standard
    deviation.
    """

    cell: str
    engine: str
    variant: str | None
    environment: str | None = None
    """The name of `--env`; null is the Python that polybench ran in."""
    device: str
    workload: Workload
    ranks: int = 1
    """Processes of each worker: as many as replicas, where these are processes."""
    status: Status
    reason: str | None = None
    remedy: str | None = None
    log: str | None = None
    warnings: list[str] = []
    versions: dict[str, Any] = {}
    step_seconds: StepSeconds | None = None
    block_means: BlockMeans | None = None
    """Null in documents that were saved before it was there, too."""
    samples_per_second: float | None = None
    epoch_seconds: float | None = None
    startup: Startup | None = None
    call_seconds: float | None = None
    """Of a call of the engine from Python and back, beside the seconds of its steps, which no sample has: for
    Flux the bridge to Julia, and the collections that `gc_off` keeps out of steps. The median of blocks."""
    break_even: list[BreakEven] = []
    allocations: Allocations = Allocations()
    gc: GarbageCollection = GarbageCollection()
    pipeline: Pipeline | None = None
    memory: Memory = Memory()
    utilization: Utilization = Utilization()
    energy: Energy = Energy()
    disturbance: Disturbance = Disturbance()
    cost: Cost | None = None
    roof: Roof | None = None
    parity: Parity = UNCHECKED
    losses: list[float] = []
    accuracy: float | None = None
    accuracy_std: float | None = None
    accuracy_difference: AccuracyDifference | None = None
    time_to_accuracy: TimeToAccuracy | None = None
    trainings: list[Training] = []
    relative: Relative | None = None
    device_speedup: DeviceSpeedup | None = None
    scaling: Scaling | None = None
    communication: Communication | None = None
    samples: Samples | None = None

    @property
    def engine_name(self) -> str:
        """As it is asked for: `torch+compile@nightly`."""
        variants = tuple(self.variant.split("+")) if self.variant else ()
        return str(EngineName(self.engine, variants, self.environment))

    @property
    def steps(self) -> list[list[list[float]]]:
        """Seconds of all samples, as [process][round][sample]; empty where there are none."""
        return self.samples.step_seconds if self.samples else []

    @property
    def typical_seconds(self) -> float:
        """Of a typical step of a cell that was measured."""
        assert self.step_seconds is not None
        return self.step_seconds.median

    @property
    def measured(self) -> bool:
        """Whether it has step times."""
        return self.step_seconds is not None

    @property
    def ranked(self) -> bool:
        """Measured, and not known to have computed something else."""
        return self.measured and self.status != "failed" and self.parity.status != "fail"
