"""Orders the configurations of a round, groups them by memory, and chooses timing blocks and rounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np

from polybench.schema.options import WARMUP_STEPS_PER_BLOCK, Study

Item = TypeVar("Item")

STOPPING_CHECKS = (5, 10, 20, 40, 80)
"""Rounds of the first process run after which its margins of error are checked; fixed, to avoid bias."""

_BLOCK_SECONDS = 0.5
"""Seconds of a timing block: 30 steps of 16 ms, and short enough that interference affects all
configurations alike."""

_STEPS = (5, 200)
"""Minimum and maximum of timed steps in a timing block."""
_LONG_ENOUGH = 0.1
"""Seconds of a timing block in which the kernel's counters, of 10 ms each, show what other programs took."""

WARM_UP_STEPS = 3

CALIBRATION_STEPS = 20
"""The fastest of these is a step without interference.

The first steps are slower, because all workers start together.
"""

COUNTED_STEPS = 5
"""Steps in a counting pass. Steps allocate alike; several cover work that some steps skip."""


def order_of_round(items: Sequence[Item], seed: int, process: int, number: int) -> list[Item]:
    """Return the items in this round's random order."""
    order = np.random.default_rng([seed, process, number]).permutation(len(items))
    return [items[index] for index in order]


def steps_per_round(step_seconds: Sequence[float], share: float, steps_in_epoch: int) -> int:
    """Return the timed steps of a timing block, the same for all configurations.

    `step_seconds` has the seconds of one step of each configuration; `share` are the seconds that one process run
    may take. Data repeats after `steps_in_epoch`.
    """
    round_seconds = min(_BLOCK_SECONDS * len(step_seconds), share / STOPPING_CHECKS[0])
    fitting = int(round_seconds / sum(step_seconds))
    minimum, maximum = _STEPS
    maximum = max(maximum, math.ceil(_LONG_ENOUGH / min(step_seconds)))
    return max(1, min(max(fitting, minimum), maximum, steps_in_epoch))


def max_rounds(round_seconds: float, share: float) -> int:
    """Return the rounds that one process run has time for, rounded down to a stopping check; at least 1."""
    fitting = max(1, int(share / round_seconds))
    return max([check for check in STOPPING_CHECKS if check <= fitting], default=fitting)


def groups(bytes_by_configuration: Mapping[Item, int], available: int) -> list[list[Item]]:
    """Group configurations whose workers fit into memory together, in order; one that never fits is alone."""
    grouped: list[list[Item]] = []
    used = 0
    for configuration, size in bytes_by_configuration.items():
        if grouped and used + size <= available:
            grouped[-1].append(configuration)
            used += size
        else:
            grouped.append([configuration])
            used = size
    return grouped


class TimingBlocks(NamedTuple):
    """Timed steps of a timing block, and rounds of a process run."""

    steps: int
    rounds: int


class RoundBudget(msgspec.Struct, kw_only=True):
    """Timing blocks and rounds of one group of configurations, chosen in its first process run; part of the log.

    Attributes:
        steps_per_round: of the study; None lets polybench choose.
        rounds_per_process: of the study; None lets polybench choose.
        seconds_left: the part of the study's budget that is left for the group.
        block: None until it is chosen.
        cut_short: true if the budget ended before all requested rounds.
        spare_seconds: seconds of this process run that its remaining rounds will not need.
    """

    steps_per_round: int | None
    rounds_per_process: int | None
    process_runs_left: int
    seconds_left: float
    block: TimingBlocks | None = None
    cut_short: bool = False
    spare_seconds: float = 0.0
    _round_seconds: float = 0.0
    _share: float = 0.0
    _spent: float = 0.0

    @classmethod
    def of(cls, study: Study, share: float = 1.0) -> RoundBudget:
        """Return the budget of a group with this share of the study's budget."""
        return cls(
            steps_per_round=study.steps_per_round,
            rounds_per_process=study.rounds_per_process,
            process_runs_left=study.processes,
            seconds_left=study.budget * share,
        )

    @property
    def is_adaptive(self) -> bool:
        """True if the first process run may stop as soon as its margins of error are small enough."""
        return self.rounds_per_process is None

    def start_process_run(self) -> float:
        """Start the next process run; return the seconds that its rounds may take."""
        self._share = max(0.0, self.seconds_left) / max(1, self.process_runs_left)
        self.process_runs_left -= 1
        self._spent = 0.0
        return self._share

    def calibrate(self, step_seconds: Sequence[float], steps_in_epoch: int) -> TimingBlocks:
        """Choose steps and rounds that are not fixed, from each configuration's step time alone."""
        block = self.block
        steps = block.steps if block else self.steps_per_round
        steps = steps or steps_per_round(step_seconds, self._share, steps_in_epoch)
        self._round_seconds = max(self._round_seconds, sum(step_seconds) * (steps + WARMUP_STEPS_PER_BLOCK))
        rounds = block.rounds if block else self.rounds_per_process
        self.block = TimingBlocks(steps, rounds or max_rounds(self._round_seconds, self._share))
        return self.block

    def has_another_round(self, done: int) -> bool:
        """True if this process run does another round after `done` rounds."""
        if done == 0:
            return True  # a process run measures at least one round
        if self.block is None or done >= self.block.rounds:
            return False
        fits = self._spent + self._round_seconds <= self._share
        self.cut_short = self.cut_short or not fits
        return fits

    def start_round(self, done: int) -> float:
        """Start a round after `done` rounds; return the seconds that the remaining rounds will not need."""
        remaining = 0 if self.block is None else self.block.rounds - done
        self.spare_seconds = self._share - self._spent - self._round_seconds * remaining
        return self.spare_seconds

    def spend(self, seconds: float, reruns: float = 0.0) -> None:
        """Subtract the seconds of a round and of the timing blocks that it re-measured."""
        self._spent += seconds + reruns
        self.seconds_left -= seconds + reruns
        self._round_seconds = max(self._round_seconds, seconds)

    def stop_after(self, rounds: int) -> None:
        """Limit all process runs to these rounds, because more would hardly narrow an interval."""
        if self.block is not None:
            self.block = self.block._replace(rounds=rounds)
