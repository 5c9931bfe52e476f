"""How long a block is and how many rounds there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from polybench.core.spec import UNTIMED_STEPS, Study
from polybench.planning import schedule

WARM_UP_STEPS = 3

CALIBRATION_STEPS = 20
"""The fastest of these is an undisturbed step: the first ones alone still settle after the crowded start."""

COUNTED_STEPS = 5
"""Each step allocates what the one before it did; some more, for what is not done in every step."""


class Block(NamedTuple):
    """Timed steps of a block, and how many rounds of such blocks a replicate has."""

    steps: int
    rounds: int


class PaceState(NamedTuple):
    """What a pace has to know to go on where it was."""

    block: Block | None
    cut_short: bool
    left: float
    replicates: int
    round_seconds: float


class Pace:
    """The blocks of one group of cells: chosen in its first replicate, then kept.

    Args:
        study: with `steps` or `rounds`, if they are not to be chosen.
        share: of the study's budget, for this group: its part of all cells.

    Attributes:
        block: None until it was chosen.
        cut_short: the budget ended before the rounds that were asked for were done.
    """

    def __init__(self, study: Study, share: float = 1.0) -> None:
        self.block: Block | None = None
        self.cut_short = False
        self._study = study
        self._left = study.budget * share
        self._replicates = study.processes
        self._share = self._spent = self._round_seconds = 0.0

    @property
    def state(self) -> PaceState:
        """Between two replicates."""
        return PaceState(self.block, self.cut_short, self._left, self._replicates, self._round_seconds)

    def restore(self, state: PaceState) -> None:
        """Go on from there."""
        self.block, self.cut_short, self._left, self._replicates, self._round_seconds = state

    @property
    def adaptive(self) -> bool:
        """Whether the first replicate may stop as soon as its intervals are narrow enough."""
        return self._study.rounds is None

    def start_replicate(self) -> float:
        """Seconds that the rounds of the replicate that comes now may take."""
        self._share = max(0.0, self._left) / max(1, self._replicates)
        self._replicates -= 1
        self._spent = 0.0
        return self._share

    def calibrate(self, step_seconds: Sequence[float], steps_in_epoch: int) -> Block:
        """Choose what is not fixed yet, from each cell's step time measured alone."""
        if self.block is not None:
            steps, rounds = self.block
        else:
            steps = self._study.steps or schedule.steps_per_round(step_seconds, self._share, steps_in_epoch)
            rounds = 0
        self._round_seconds = max(self._round_seconds, sum(step_seconds) * (steps + UNTIMED_STEPS))
        rounds = rounds or self._study.rounds or schedule.rounds_that_fit(self._round_seconds, self._share)
        self.block = Block(steps, rounds)
        return self.block

    def another_round(self, done: int) -> bool:
        """Whether this replicate has one more round to do after `done` ones."""
        if done == 0:
            return True  # a process that measured nothing was started in vain
        if self.block is None or done >= self.block.rounds:
            return False
        fits = self._spent + self._round_seconds <= self._share
        self.cut_short = self.cut_short or not fits
        return fits

    def spare(self, done: int) -> float:
        """Seconds of this replicate that its rounds, `done` of which are finished, will not need."""
        to_come = 0 if self.block is None else self.block.rounds - done
        return self._share - self._spent - self._round_seconds * to_come

    def spend(self, seconds: float, repeats: float = 0.0) -> None:
        """A round took so long, and so long the blocks that were measured again in it."""
        self._spent += seconds + repeats
        self._left -= seconds + repeats
        self._round_seconds = max(self._round_seconds, seconds)

    def enough_after(self, rounds: int) -> None:
        """More rounds than these would hardly narrow an interval: no replicate does more."""
        if self.block is not None:
            self.block = self.block._replace(rounds=rounds)
