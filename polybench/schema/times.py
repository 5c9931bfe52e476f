"""Times of a configuration: steps, start-up, waits for data, and comparisons with other configurations.

All times are in seconds. Null means "not measured" or "no source", never 0.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0)]
"""A time or a ratio of times. Code that divides by it needs no check for zero, even in an edited document."""

Scope = Literal["processes", "single_process"]
"""The source of an interval's variation: several process runs, or the rounds of one."""


class StepTime(msgspec.Struct, frozen=True):
    """Seconds of a training step, as `stats.statistics.summarize_step_times` computes them.

    `median` is a typical step of a typical process: the geometric mean over processes of the geometric mean
    of their rounds' medians. `ci95` is its interval, null for a single round. The other fields are over all
    step times; p05, p95 and std are null if each value is the mean of a block.
    """

    median: Positive
    mean: Positive
    min: Positive
    p05: float | None
    p95: float | None
    std: float | None
    n: int
    ci95: tuple[Positive, Positive] | None


class MeanStepTime(msgspec.Struct, frozen=True):
    """The mean step of each timing block (the timed steps of a round), and values derived from it.

    The mean contains everything that happens in a block. A median leaves out what happens in fewer than half
    of the steps, such as pauses of the garbage collector. Estimator and interval are those of `step_time`.
    """

    seconds: Positive
    ci95: tuple[Positive, Positive] | None
    items_per_second: Positive
    epoch_seconds: Positive
    """Mean step x steps per epoch; the `epoch_seconds` of a result may be measured instead."""


class Startup(msgspec.Struct, frozen=True):
    """Cold start of a worker, phase by phase; the median over processes."""

    process_seconds: float
    import_seconds: float
    build_seconds: float
    data_seconds: float
    first_step_seconds: float
    second_step_seconds: float
    detail: dict[str, float] = {}

    @property
    def cold_start_seconds(self) -> float:
        """Seconds from the start of the process to the end of the first step."""
        return (
            self.process_seconds
            + self.import_seconds
            + self.build_seconds
            + self.data_seconds
            + self.first_step_seconds
        )


class BreakEven(msgspec.Struct, frozen=True):
    """Number of steps after which a longer cold start pays off against the baseline; null means never."""

    baseline: str
    steps: int | None


class Pipeline(msgspec.Struct, frozen=True):
    """The input pipeline of a configuration; rates of one process."""

    data_wait_seconds_per_step: float | None = None
    """Wait of the training thread for its batch, per timed step; null if the engine cannot measure it."""
    compute_seconds_per_step: float | None = None
    """The rest of that step."""
    pipeline_items_per_second: float | None = None
    """The pipeline without training."""
    training_items_per_second: float | None = None
    """Training on preloaded batches."""


class BaselineComparison(msgspec.Struct, frozen=True):
    """Speed relative to the baseline; above 1 is faster.

    `mean_speedup`, with `mean_ci95`, is the ratio of mean steps, see MeanStepTime.
    """

    baseline: str
    speedup: Positive
    ci95: tuple[Positive, Positive] | None
    scope: Scope
    inconclusive_reason: str | None = None
    """Reason why the comparison is inconclusive whatever its interval: interference."""
    mean_speedup: Positive | None = None
    mean_ci95: tuple[Positive, Positive] | None = None


class GpuSpeedup(msgspec.Struct, frozen=True):
    """Speed relative to the same engine on the CPU, the baseline; above 1 is faster."""

    baseline: str
    speedup: Positive
    ci95: tuple[Positive, Positive] | None
    scope: Scope = "processes"
    inconclusive_reason: str | None = None


class StepTimes(msgspec.Struct, frozen=True):
    """All step times: seconds per step, as [process][round][value].

    With resolution "block", each value is the mean of `steps_per_value` steps.
    """

    resolution: Literal["step", "block"]
    steps_per_value: int
    values: list[list[list[Positive]]]
