"""How long a study will take, roughly, before anything of it is started: for `--dry-run` and progress.

What earlier studies on this machine have seen is taken from them. Where there are none, a training step is
taken to be its multiply-adds at one rate for all engines. On 2 cores, lenet's step took 0.5 (tf), 0.9 (torch)
and 1.8 (flux) times that, resnet32's 0.5, 1.8 and 3.2 times on a busy machine. That a deeper network compiles
longer is not in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from polybench.core import units
from polybench.core.arithmetic import forward_multiply_adds, training_multiply_adds
from polybench.core.document.circumstances import Took
from polybench.core.spec import UNTIMED_STEPS, Cell, Study, evaluates, most_epochs, trains
from polybench.data import expected_images
from polybench.planning.pace import CALIBRATION_STEPS, COUNTED_STEPS, WARM_UP_STEPS, Pace
from polybench.planning.plan import Plan, counts_natively, counts_natively_apart, memory_groups, row

CPU_RATE = 10e9
"""Multiply-adds a second and thread."""
CUDA_RATE = 1000e9
"""Multiply-adds a second and GPU; no number was measured yet."""
REFERENCE_RATE = 0.5e9
"""Of the float64 reference, which has one thread."""

STEP_OVERHEAD = 0.5e-3
"""Seconds of a step that has nothing to compute."""

WEIGHT_SECONDS = 3e-9
"""Of a step on the CPU for each weight that it updates: Adam of imdb-fasttext's 53 million took 0.18 s."""
CHECKED_WEIGHT_SECONDS = 0.2e-6
"""Of a pass of the check for each weight, which is written, read and compared in float64: 278 s for those."""

_BYTES_PER_SECOND = 200e6
"""Images made or read, and written as an epoch."""


class Known(NamedTuple):
    """What earlier studies of the same workload on this machine tell.

    Attributes:
        steps: seconds of a step, by cell.
        starts: seconds of a cold start, by cell.
        took: of the newest study of exactly these cells.
        same_rounds: whether that one had as many processes, rounds and steps, and the same budget.
        counted: of the newest study of exactly these cells that had the same passes that count.
        parity: seconds of a check of exactly these cells, of the newest study that did one.
        checked: whether all these cells have passed the check, which then need not be repeated.
    """

    steps: Mapping[str, float] = {}
    starts: Mapping[str, float] = {}
    took: Took | None = None
    same_rounds: bool = False
    counted: Took | None = None
    parity: float | None = None
    checked: bool = False


NOTHING_KNOWN = Known()


class Estimate(NamedTuple):
    """Seconds of each part of a study; `rounds` may end sooner, when intervals are narrow enough."""

    data: float
    parity: float
    starts: float
    rounds: float
    counting: float
    native: float
    trainings: float

    @property
    def total(self) -> float:
        """Of the whole study."""
        return sum(self)

    def in_words(self) -> str:
        """The total and its parts, but those that take no time."""
        named = {
            "data": self.data,
            "identity check": self.parity,
            "starts and warm-up": self.starts,
            "rounds": self.rounds,
            "counting": self.counting + self.native,
            "whole trainings": self.trainings,
        }
        parts = (f"{name} {units.rough_seconds(value)}" for name, value in named.items() if value >= 0.5)
        return f"about {units.rough_seconds(self.total)}: {', '.join(parts)}"


NOTHING_EXPECTED = Estimate(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def estimate(plan: Plan, known: Known = NOTHING_KNOWN) -> Estimate:
    """Of a plan whose engines and devices are all there."""
    guess = _estimate(plan, known)
    took, study = known.took, plan.study
    if known.checked or not study.parity:
        guess = guess._replace(parity=0.0)
    elif known.parity is not None:
        guess = guess._replace(parity=known.parity)
    if took is None:
        return guess
    first, *others = took.starts
    later = fmean(others) if others else first
    guess = guess._replace(data=took.data, starts=first + (study.processes - 1) * later)
    if (counted := known.counted) is not None:
        guess = guess._replace(counting=counted.counting, native=counted.native)
    return guess._replace(rounds=sum(took.rounds)) if known.same_rounds else guess


def _estimate(plan: Plan, known: Known) -> Estimate:
    """From the speed of single cells, measured or guessed."""
    study, shape = plan.study, plan.model.input_shape
    images = expected_images(study.data, "train", shape)
    steps_in_epoch = max(1, images // plan.workload.batch_size)
    epoch_bytes = images * math.prod(shape) * 4
    steps = {
        cell: known.steps.get(cell.name) or _step_seconds(plan, cell, plan.workload.batch_size)
        for cell in plan.cells
    }
    groups = memory_groups(plan, plan.cells, epoch_bytes)
    start = _start_seconds(groups, known)
    warm_up = WARM_UP_STEPS + min(CALIBRATION_STEPS, steps_in_epoch) + UNTIMED_STEPS
    measured = [
        _measured_seconds(study, [steps[cell] for cell in group], len(group) / len(steps), steps_in_epoch)
        for group in groups
    ]
    return Estimate(
        data=epoch_bytes / _BYTES_PER_SECOND,
        parity=start + _check_seconds(plan),
        starts=study.processes * (start + warm_up * sum(steps.values())),
        rounds=sum(rounds for rounds, _ in measured),
        counting=sum(counting for _, counting in measured),
        native=_native_seconds(plan, steps, epoch_bytes, known),
        trainings=sum(
            _training_seconds(plan, cell, step * steps_in_epoch, known) for cell, step in steps.items()
        ),
    )


def rate(plan: Plan, device: str) -> float:
    """Multiply-adds a second that a cell on this device is taken to do."""
    return CPU_RATE * plan.workload.threads if device == "cpu" else CUDA_RATE


def _start_seconds(groups: Sequence[Sequence[Cell]], known: Known) -> float:
    """One group after the other, its workers side by side."""
    return sum(max(_start(cell, known) for cell in group) for group in groups)


def _start(cell: Cell, known: Known) -> float:
    return known.starts.get(cell.name) or row(cell).start_seconds


def _native_seconds(plan: Plan, steps: Mapping[Cell, float], epoch_bytes: int, known: Known) -> float:
    """Of the pass after all timing, with a start where it has processes of its own."""
    cells = [cell for cell in plan.cells if counts_natively(plan, cell)]
    counted, start = UNTIMED_STEPS + COUNTED_STEPS, 0.0
    if counts_natively_apart(plan.study):
        counted += WARM_UP_STEPS
        start = _start_seconds(memory_groups(plan, cells, epoch_bytes), known)
    return start + counted * sum(steps[cell] for cell in cells)


def _step_seconds(plan: Plan, cell: Cell, batch_size: int) -> float:
    products = batch_size * training_multiply_adds(plan.model) / rate(plan, cell.device)
    weights = WEIGHT_SECONDS * plan.model.parameters() if cell.device == "cpu" else 0.0
    return STEP_OVERHEAD + products + weights


def _measured_seconds(
    study: Study, steps: Sequence[float], share: float, steps_in_epoch: int
) -> tuple[float, float]:
    """Of a group of cells: all its rounds, and the passes that count.

    Args:
        study: what is measured.
        steps: seconds of a step, one entry a cell.
        share: of the budget.
        steps_in_epoch: the most that a block can have.
    """
    pace = Pace(study, share)
    budget = pace.start_replicate()
    block = pace.calibrate(steps, steps_in_epoch)
    one = sum(steps) * (block.steps + UNTIMED_STEPS)
    rounds = study.processes * one * max(1, min(block.rounds, int(budget / one)))
    counted = 2 * (COUNTED_STEPS + UNTIMED_STEPS) if study.metrics else 0
    counted += 2 * (block.steps + UNTIMED_STEPS) if study.input == "pipeline" else 0
    return rounds, counted * sum(steps)


def _check_seconds(plan: Plan) -> float:
    """The identity check, once its workers are there: what the reference computes, and what engines do.

    Without the reference's cache, and without what a declared convention costs.
    """
    k, batch_size = plan.study.parity_steps, min(plan.workload.batch_size, plan.model.parity_batch_size)
    cells = [cell for cell in plan.cells if cell.repeat == 1 and row(cell).does_arithmetic]
    passes = (len({cell.engine for cell in cells}) + len(cells)) * (k + 1)
    reference = passes * batch_size * training_multiply_adds(plan.model) / REFERENCE_RATE
    reference += passes * CHECKED_WEIGHT_SECONDS * plan.model.parameters()
    return reference + sum((3 * k + 4) * _step_seconds(plan, cell, batch_size) for cell in cells)


def _training_seconds(plan: Plan, cell: Cell, epoch: float, known: Known) -> float:
    """All of a cell's whole trainings, of which each has a worker of its own."""
    study = plan.study
    if not trains(study):
        return 0.0
    if evaluates(study):
        images = expected_images(study.data, "test", plan.model.input_shape)
        epoch += images * forward_multiply_adds(plan.model) / rate(plan, cell.device)
    return study.processes * (_start(cell, known) + most_epochs(study) * epoch)
