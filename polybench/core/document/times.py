"""How long a cell took: steps, start, waiting for data, and in relation to other cells.

Seconds everywhere; null is "not measured" or "no source", never 0.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0)]
"""A time or a ratio of times: what divides by it needs no case of its own for a foreign document's zero."""


class StepSeconds(msgspec.Struct, frozen=True):
    """Seconds of a training step, as `core.statistics.step_seconds` has them.

    `median` is a typical step of a typical process: the geometric mean over processes of the geometric mean
    of their rounds' medians. `interval95` is about it, null with a single round. The others are over all
    samples; p05, p95 and std are null for samples of blocks.
    """

    median: Positive
    mean: Positive
    min: Positive
    p05: float | None
    p95: float | None
    std: float | None
    n: int
    interval95: tuple[Positive, Positive] | None


class BlockMeans(msgspec.Struct, frozen=True):
    """A cell's speed by the mean step of each block (its timed steps in a round), not by the median one.

    All that happens in a block is in its mean. The median leaves out what fewer than half of the steps met,
    such as the pauses of a garbage collector. Estimators and intervals are those of `step_seconds` and
    `relative`; `speedup` is null where `relative` is.
    """

    seconds_per_step: Positive
    interval95: tuple[Positive, Positive] | None
    samples_per_second: Positive
    epoch_seconds: Positive
    """As many steps as an epoch has; no measured epoch, as `epoch_seconds` of a result may be."""
    speedup: Positive | None = None
    speedup_interval95: tuple[Positive, Positive] | None = None


class Startup(msgspec.Struct, frozen=True):
    """Cold start of a worker, each part on its own; the median over processes."""

    process_seconds: float
    import_seconds: float
    build_seconds: float
    data_seconds: float
    first_step_seconds: float
    second_step_seconds: float
    detail: dict[str, float] = {}

    @property
    def total_seconds(self) -> float:
        """From starting the process to the end of its first step: what the table calls the cold start."""
        return (
            self.process_seconds
            + self.import_seconds
            + self.build_seconds
            + self.data_seconds
            + self.first_step_seconds
        )


class BreakEven(msgspec.Struct, frozen=True):
    """After how many steps the cold start is repaid against another cell; null is "never"."""

    against: str
    steps: int | None


class Pipeline(msgspec.Struct, frozen=True):
    """The input pipeline of a cell, where it has one; the rates are of one process."""

    waiting_seconds_per_step: float | None = None
    """Of a timed step, what the training thread waited for its batch; null if nobody could tell."""
    compute_seconds_per_step: float | None = None
    """The rest of that step."""
    pipeline_samples_per_second: float | None = None
    """When nobody trains."""
    training_samples_per_second: float | None = None
    """On preloaded batches."""


class Relative(msgspec.Struct, frozen=True):
    """Speed in relation to the baseline cell; above 1 is faster. `interval95` at the 95 % level."""

    baseline: str
    speedup: Positive
    interval95: tuple[Positive, Positive] | None
    scope: Literal["processes", "within one run"]
    no_verdict: str | None = None
    """Why this is no verdict, whatever the interval says: the machine was disturbed."""


class DeviceSpeedup(msgspec.Struct, frozen=True):
    """Speed in relation to the same engine's cell on the CPU; above 1 is faster."""

    cpu_cell: str
    speedup: Positive
    interval95: tuple[Positive, Positive] | None
    scope: Literal["processes", "within one run"] = "processes"
    no_verdict: str | None = None


class Samples(msgspec.Struct, frozen=True):
    """Every sample: seconds of a step, as [process][round][sample]."""

    kind: Literal["step", "block"]
    steps_per_sample: int
    step_seconds: list[list[list[Positive]]]
