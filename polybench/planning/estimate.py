"""Estimates the duration of a study before it starts, for `--dry-run` and progress.

The estimate uses earlier studies on this machine. Without any, a training step takes its multiply-adds at one
rate for all engines. On 2 cores, lenet's step took 0.5 (tf), 0.9 (torch) and 1.8 (flux) times that, and
resnet32's 0.5, 1.8 and 3.2 times on a busy machine. The estimate ignores that deeper networks compile longer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from polybench.data import expected_images
from polybench.networks.network_file import REFERENCE_RATE
from polybench.planning.plan import Plan, engine_spec, has_native_count, memory_groups, needs_native_count_process
from polybench.planning.schedule import CALIBRATION_STEPS, COUNTED_STEPS, WARM_UP_STEPS, RoundBudget
from polybench.schema import units
from polybench.schema.metadata import PhaseSeconds
from polybench.schema.options import WARMUP_STEPS_PER_BLOCK, Configuration, Study, does_evaluate, does_train, max_epochs

CPU_RATE = 10e9
"""Multiply-adds per second and thread."""
CUDA_RATE = 1000e9
"""Multiply-adds per second and GPU; not measured yet."""

STEP_OVERHEAD = 0.5e-3
"""Fixed overhead of a step in seconds."""

WEIGHT_SECONDS = 3e-9
"""Seconds per updated weight of a step on the CPU: Adam took 0.18 s for the 53 million of imdb-fasttext."""
CHECKED_WEIGHT_SECONDS = 0.2e-6
"""Seconds per weight of a parity pass, which writes, reads and compares it in float64: 278 s for
imdb-fasttext."""

_BYTES_PER_SECOND = 200e6
"""Bytes of images generated or read, and written as an epoch."""


class PastMeasurements(NamedTuple):
    """Measurements of earlier studies of the same workload on this machine, by configuration or of exactly these.

    Attributes:
        start_seconds: of a cold start.
        has_same_rounds: true if the study of `phase_seconds` had the same processes, rounds, steps and budget.
        counting_seconds: of the newest study with the same counting passes.
        all_checked: true if the parity check of all these configurations is cached.
    """

    step_seconds: Mapping[str, float] = {}
    start_seconds: Mapping[str, float] = {}
    phase_seconds: PhaseSeconds | None = None
    has_same_rounds: bool = False
    counting_seconds: PhaseSeconds | None = None
    parity_seconds: float | None = None
    all_checked: bool = False


NO_PAST_MEASUREMENTS = PastMeasurements()


class Estimate(NamedTuple):
    """Seconds of each phase of a study; `rounds` may stop earlier if margins of error are small enough."""

    data: float
    parity: float
    process_starts: float
    rounds: float
    allocation_count: float
    native_trace: float
    trainings: float

    @property
    def total(self) -> float:
        """Seconds of the whole study."""
        return sum(self)

    def describe(self) -> str:
        """Describe the total and all phases that take time."""
        named = {
            "data": self.data,
            "parity check": self.parity,
            "starts and warm-up": self.process_starts,
            "rounds": self.rounds,
            "counting": self.allocation_count + self.native_trace,
            "whole trainings": self.trainings,
        }
        parts = (f"{name} {units.format_rough_seconds(value)}" for name, value in named.items() if value >= 0.5)
        return f"about {units.format_rough_seconds(self.total)}: {', '.join(parts)}"


ZERO_ESTIMATE = Estimate(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def estimate(plan: Plan, past: PastMeasurements = NO_PAST_MEASUREMENTS) -> Estimate:
    """Estimate a plan whose engines and devices are available."""
    guess = _estimate(plan, past)
    phases, study = past.phase_seconds, plan.study
    if past.all_checked or not study.parity:
        guess = guess._replace(parity=0.0)
    elif past.parity_seconds is not None:
        guess = guess._replace(parity=past.parity_seconds)
    if phases is None:
        return guess
    first, *others = phases.process_starts
    later = fmean(others) if others else first
    guess = guess._replace(data=phases.data, process_starts=first + (study.processes - 1) * later)
    if (counted := past.counting_seconds) is not None:
        guess = guess._replace(allocation_count=counted.allocation_count, native_trace=counted.native_trace)
    return guess._replace(rounds=sum(phases.rounds)) if past.has_same_rounds else guess


def _estimate(plan: Plan, past: PastMeasurements) -> Estimate:
    """Estimate from the speed of single configurations, measured or assumed."""
    study, shape = plan.study, plan.model.input_shape
    images = expected_images(study.data, "train", shape)
    steps_in_epoch = max(1, images // plan.workload.batch_size)
    epoch_bytes = images * math.prod(shape) * 4
    steps = {
        configuration: past.step_seconds.get(configuration.name)
        or _step_seconds(plan, configuration, plan.workload.batch_size)
        for configuration in plan.configurations
    }
    groups = memory_groups(plan, plan.configurations, epoch_bytes)
    start = _start_seconds(groups, past)
    warm_up = WARM_UP_STEPS + min(CALIBRATION_STEPS, steps_in_epoch) + WARMUP_STEPS_PER_BLOCK
    measured = [
        _measured_seconds(
            study, [steps[configuration] for configuration in group], len(group) / len(steps), steps_in_epoch
        )
        for group in groups
    ]
    return Estimate(
        data=epoch_bytes / _BYTES_PER_SECOND,
        parity=start + _check_seconds(plan),
        process_starts=sum(_start(configuration, past) for configuration in plan.configurations)
        + (study.processes - 1) * start
        + study.processes * warm_up * sum(steps.values()),
        rounds=sum(rounds for rounds, _ in measured),
        allocation_count=sum(counting for _, counting in measured),
        native_trace=_native_seconds(plan, steps, epoch_bytes, past),
        trainings=sum(
            _training_seconds(plan, configuration, step * steps_in_epoch, past) for configuration, step in steps.items()
        ),
    )


def rate(plan: Plan, device: str) -> float:
    """Multiply-adds per second assumed for a configuration on this device."""
    return CPU_RATE * plan.workload.threads if device == "cpu" else CUDA_RATE


def _start_seconds(groups: Sequence[Sequence[Configuration]], past: PastMeasurements) -> float:
    """Seconds to start all groups in turn; workers of a group start together."""
    return sum(max(_start(configuration, past) for configuration in group) for group in groups)


def start_seconds(plan: Plan, past: PastMeasurements) -> dict[str, float]:
    """Return the expected seconds of each configuration's cold start, by name."""
    return {configuration.name: _start(configuration, past) for configuration in plan.configurations}


def _start(configuration: Configuration, past: PastMeasurements) -> float:
    return past.start_seconds.get(configuration.name) or engine_spec(configuration).startup_seconds


def _native_seconds(
    plan: Plan, steps: Mapping[Configuration, float], epoch_bytes: int, past: PastMeasurements
) -> float:
    """Seconds of the native counting pass, with the start of separate processes."""
    configurations = [configuration for configuration in plan.configurations if has_native_count(plan, configuration)]
    separate = [one for one in configurations if needs_native_count_process(plan.study, one)]
    counted = WARMUP_STEPS_PER_BLOCK + COUNTED_STEPS
    start = _start_seconds(memory_groups(plan, separate, epoch_bytes), past) if separate else 0.0
    return (
        start
        + counted * sum(steps[configuration] for configuration in configurations)
        + WARM_UP_STEPS * sum(steps[configuration] for configuration in separate)
    )


def _step_seconds(plan: Plan, configuration: Configuration, batch_size: int) -> float:
    products = batch_size * plan.model.macs(plan.workload.pass_) / rate(plan, configuration.device)
    weights = WEIGHT_SECONDS * plan.model.parameters() if configuration.device == "cpu" else 0.0
    return STEP_OVERHEAD + products + weights


def _measured_seconds(study: Study, steps: Sequence[float], share: float, steps_in_epoch: int) -> tuple[float, float]:
    """Return seconds of a group of configurations: (all rounds, counting passes).

    `steps` are seconds of a step of each configuration; `share` is the group's share of the budget.
    """
    round_budget = RoundBudget.of(study, share)
    budget = round_budget.start_process_run()
    block = round_budget.calibrate(steps, steps_in_epoch)
    one = sum(steps) * (block.steps + WARMUP_STEPS_PER_BLOCK)
    rounds = study.processes * one * max(1, min(block.rounds, int(budget / one)))
    counted = 2 * (COUNTED_STEPS + WARMUP_STEPS_PER_BLOCK) if study.metrics else 0
    counted += 2 * (block.steps + WARMUP_STEPS_PER_BLOCK) if study.input == "pipeline" else 0
    return rounds, counted * sum(steps)


def _check_seconds(plan: Plan) -> float:
    """Seconds of the parity check after its workers have started: reference and engines.

    Excludes the reference's cache and the cost of known deviations.
    """
    k, batch_size = plan.study.parity_steps, min(plan.workload.batch_size, plan.model.parity_batch_size)
    configurations = [
        configuration
        for configuration in plan.configurations
        if configuration.repeat == 1 and engine_spec(configuration).computes
    ]
    changes = len(plan.workload.optimizer.changes[:3])
    # Engines share a training of k steps and the state at the initial weights; the second timed step is their own.
    passes = (k + 2 + changes) * len({configuration.engine for configuration in configurations}) + len(configurations)
    reference = passes * batch_size * plan.model.macs(plan.workload.pass_) / REFERENCE_RATE
    reference += passes * CHECKED_WEIGHT_SECONDS * plan.model.parameters()
    return reference + sum(
        (k + 4 + changes) * _step_seconds(plan, configuration, batch_size)
        + 5 * _step_seconds(plan, configuration, plan.workload.batch_size)
        for configuration in configurations
    )


def _training_seconds(plan: Plan, configuration: Configuration, epoch: float, past: PastMeasurements) -> float:
    """Seconds of all whole trainings of a configuration, each in its own worker."""
    study = plan.study
    if not does_train(study):
        return 0.0
    if does_evaluate(study):
        images = expected_images(study.data, "test", plan.model.input_shape)
        epoch += images * plan.model.forward_macs() / rate(plan, configuration.device)
    return study.processes * (_start(configuration, past) + max_epochs(study) * epoch)
