"""How long a block is and how many rounds there are."""

from __future__ import annotations

from collections.abc import Sequence

from polybench.core.spec import UNTIMED_STEPS
from polybench.planning import schedule

WARM_UP_STEPS = 3


CALIBRATION_STEPS = 20
"""The fastest of these is an undisturbed step: the first ones alone still settle after the crowded start."""


COUNTED_STEPS = 5
"""Each step allocates what the one before it did; some more, for what is not done in every step."""


class Pace:
    """How long a block is and how many rounds there are: found in the first replicate, then kept.

    Args:
        steps: `--steps`, or None to choose from the measured step times.
        rounds: `--rounds`, or None to stop when `narrow_enough` says so.
        budget: seconds that all replicates together may be timed for.
        replicates: how many there will be.
    """

    def __init__(self, steps: int | None, rounds: int | None, budget: float, replicates: int) -> None:
        self.steps = steps
        self.rounds = rounds
        self.adaptive = rounds is None
        self.cut_short = False
        self.timed_seconds = 0.0
        self._left = budget
        self._replicates = replicates
        self._round_seconds = 0.0

    @property
    def share(self) -> float:
        """Seconds of the budget for the replicate that comes now."""
        return max(0.0, self._left) / max(1, self._replicates)

    def calibrate(self, step_seconds: Sequence[float], share: float, steps_in_epoch: int) -> None:
        """Choose what is not fixed yet, from each cell's step time measured alone."""
        if self.steps is None:
            self.steps = schedule.steps_per_round(step_seconds, share, steps_in_epoch)
        self._round_seconds = max(self._round_seconds, sum(step_seconds) * (self.steps + UNTIMED_STEPS))
        if self.rounds is None:
            self.rounds = schedule.rounds_that_fit(self._round_seconds, share)

    def another_round(self, done: int, share: float, spent: float) -> bool:
        """Whether the replicate that spent `spent` of its `share` has one more round to do."""
        if done == 0:
            return True  # a process that measured nothing was started in vain
        if self.rounds is None or done >= self.rounds:
            return False
        fits = spent + self._round_seconds <= share
        self.cut_short = self.cut_short or not fits
        return fits

    def spend(self, seconds: float) -> None:
        self.timed_seconds += seconds
        self._left -= seconds
        self._round_seconds = max(self._round_seconds, seconds)

    def replicate_done(self) -> None:
        self._replicates -= 1
