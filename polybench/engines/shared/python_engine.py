"""The timing loop of all engines whose training step is a function of a Python program."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from time import perf_counter
from typing import Any

from polybench.engines.base import Array, Engine, Weights
from polybench.engines.job import Job
from polybench.engines.shared.batches import BufferedBatches, as_dtype
from polybench.engines.shared.float64 import float64_tensors


class PythonEngine(Engine):
    """Runs the program that `build` has imported. A framework adds how to wait for its device."""

    _job: Job
    _program: Any
    """Module with `setup`, `load`, `reset` and `train_step` (or `forward_pass`)."""
    _state: Any
    """State of the training, from the program's `setup`."""
    _train_step: Callable[..., Any]
    _initial: Weights
    _batches: Sequence[Any] | BufferedBatches = ()
    _loss: Any
    """Result of the last step: the loss, or the logits of a forward pass."""

    @abstractmethod
    def _synchronize(self, result: object = None) -> None:
        """Return when the device has computed the result and the state, and has nothing else to do."""

    def load(self, images: Array, labels: Array) -> None:
        self._batches = [self._program.load(x, y) for x, y in zip(images, labels, strict=True)]

    def reset(self) -> None:
        self._program.reset(self._state, self._initial)

    def set_initial_weights(self, weights: Weights) -> None:
        self._initial = as_dtype(weights, self._job.dtype)

    def run_steps(self, first: int, n: int) -> float:
        return self._time(self._prepare_training(first, n))

    def _prepare_training(self, first: int, n: int) -> Callable[[], Any]:
        """Return a function that trains these steps and returns the last loss; untimed work is done here."""
        self._set_step(first)
        return partial(_run, self._train_step, self._state, map(self._batch, range(first, first + n)))

    def _set_step(self, step: int) -> None:
        """Set the number of the next step, if the program has a schedule."""
        if hasattr(self._state, "step"):
            self._state.step = step

    def _batch(self, step: int) -> Any:
        """Return a step's batch, with the masks of dropout if the job gives them."""
        return self._batches[step % len(self._batches)]

    def _time(self, training: Callable[[], Any]) -> float:
        self._synchronize()
        start = perf_counter()
        loss = training()
        self._synchronize(loss)
        seconds = perf_counter() - start
        self._loss = loss
        return seconds

    def loss(self) -> float:
        return float(self._loss)

    def drain_pipeline(self, first: int, n: int) -> float:
        self._synchronize()
        start = perf_counter()
        for step in range(first, first + n):
            batch = self._batches[step % len(self._batches)]
        self._synchronize(batch)
        return perf_counter() - start

    def data_wait_seconds(self) -> float | None:
        return self._batches.wait_seconds if isinstance(self._batches, BufferedBatches) else None

    def float64_tensors(self) -> list[str]:
        return float64_tensors(state=self._state, loss=self._loss)

    def close(self) -> None:
        self._batches = ()  # stops the processes of a pipeline


def _run(train_step: Callable[..., Any], state: Any, batches: Iterable[Any]) -> Any:
    for batch in batches:
        loss = train_step(state, batch)
    return loss
