"""Snapshots of a user's program, which computes its loss only in a step that changes its state."""

from __future__ import annotations

from abc import abstractmethod

from polybench.engines.base import Engine, Snapshot, Weights


class ReplayedEngine(Engine):
    """An engine that repeats its steps from the start after a snapshot."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        """Steps since the last reset."""

    @abstractmethod
    def current_weights(self) -> Weights:
        """Return the weights by name; none if the program has no such function."""

    def snapshot(self, step: int) -> Snapshot:
        weights, steps = self.current_weights(), list(self.steps)
        self.run_steps(step, 1)
        loss = self.loss()
        self.reset()
        for earlier in steps:
            self.run_steps(earlier, 1)
        return Snapshot(loss, {}, weights)
