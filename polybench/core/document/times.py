"""How long a cell took: steps, start, waiting for data, and in relation to other cells.

Seconds everywhere; null is "not measured" or "no source", never 0.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class StepSeconds(msgspec.Struct, frozen=True):
    """Seconds of a training step over all samples; p05, p95 and std are null for samples of blocks."""

    median: float
    mean: float
    min: float
    p05: float | None
    p95: float | None
    std: float | None
    n: int
    interval95: tuple[float, float] | None


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
    """The input pipeline of a cell, where it has one.

    Of a timed step, the training thread spent `waiting_seconds_per_step` for its batch and the rest in
    `compute_seconds_per_step`; null if nobody could tell them apart. The other two are rates of one
    process: of the pipeline when nobody trains, and of training on preloaded batches.
    """

    waiting_seconds_per_step: float | None = None
    compute_seconds_per_step: float | None = None
    pipeline_samples_per_second: float | None = None
    training_samples_per_second: float | None = None


class Relative(msgspec.Struct, frozen=True):
    """Speed in relation to the baseline cell; above 1 is faster. `interval95` at the 95 % level."""

    baseline: str
    speedup: float
    interval95: tuple[float, float] | None
    scope: Literal["processes", "within one run"]


class DeviceSpeedup(msgspec.Struct, frozen=True):
    cpu_cell: str
    speedup: float
    interval95: tuple[float, float] | None


class Samples(msgspec.Struct, frozen=True):
    """Every sample: seconds of a step, as [process][round][sample]."""

    kind: Literal["step", "block"]
    steps_per_sample: int
    step_seconds: list[list[list[float]]]
