"""A regression in NumPy with planted differences: quick to record, and right by its few lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import polybench
from polybench.trace.file import Array

Tree = dict[str, Array]
ROWS = 32


class Plants(NamedTuple):
    """The differences of a program.

    `shape` is that of the recorded targets, `scale` multiplies the loss. `clip` changes the gradients before the
    recording, `clip_in_optimizer` after it. `records` turns the losses so far into the recorded one.
    """

    shape: tuple[int, ...] = (ROWS, 1)
    is_broadcast: bool = False
    is_sum: bool = False
    scale: float = 1.0
    penalty: float = 0.0
    rate: float = 0.05
    clip: Callable[[Tree], Tree] = lambda gradients: gradients
    clip_in_optimizer: Callable[[Tree], Tree] = lambda gradients: gradients
    records: Callable[[Sequence[float]], float] = lambda losses: losses[-1]


def train(file: Path, plants: Plants, steps: Sequence[int] = (0, 1, 2)) -> Path:
    """Record the first steps of a network with one hidden layer and one output."""
    random = np.random.default_rng(0)
    weights = {
        "hidden.weight": random.normal(size=(8, 4)),
        "output.weight": random.normal(size=(1, 8)),
        "output.bias": random.normal(size=1),
    }
    weights = {name: one.astype("f4") for name, one in weights.items()}
    losses: list[float] = []
    settings = {"name": "sgd", "learning_rate": plants.rate}
    with polybench.record(file, model=weights, steps=steps, settings=settings) as trace:
        for inputs, targets in _batches(1 + max(steps)):
            loss, gradients = _loss_and_gradients(weights, inputs, targets, plants)
            losses.append(loss)
            gradients = plants.clip(gradients)
            used = plants.clip_in_optimizer(gradients)
            weights = {name: one - np.float32(plants.rate) * used[name] for name, one in weights.items()}
            batch = (inputs, targets.reshape(plants.shape))
            trace.step(loss=plants.records(losses), batch=batch, gradients=gradients, weights=weights)
    return file


def _batches(count: int) -> Iterator[tuple[Array, Array]]:
    for step in range(count):
        random = np.random.default_rng([step, 1])
        inputs = random.normal(size=(ROWS, 4)).astype("f4")
        yield inputs, (0.3 + inputs[:, 0] + 0.5 * random.normal(size=ROWS)).astype("f4")


def _loss_and_gradients(weights: Tree, x: Array, targets: Array, plants: Plants) -> tuple[float, Tree]:
    hidden = np.tanh(x @ weights["hidden.weight"].T)
    predictions = hidden @ weights["output.weight"][0] + weights["output.bias"]
    difference = predictions[:, None] - (targets[None] if plants.is_broadcast else targets[:, None])
    scale = plants.scale if plants.is_sum else plants.scale / difference.size
    loss = scale * float((difference**2).sum()) + plants.penalty * float((weights["hidden.weight"] ** 2).sum())
    slope = np.float32(2 * scale) * difference.sum(axis=1)
    into_hidden = np.outer(slope, weights["output.weight"]) * (1 - hidden**2)
    return loss, {
        "hidden.weight": into_hidden.T @ x + np.float32(2 * plants.penalty) * weights["hidden.weight"],
        "output.weight": slope[None] @ hidden,
        "output.bias": slope.sum(keepdims=True),
    }


def clip_all(limit: float) -> Callable[[Tree], Tree]:
    """Clip the norm of all gradients together."""

    def clip(gradients: Tree) -> Tree:
        norm = float(np.sqrt(sum(float((one**2).sum()) for one in gradients.values())))
        return {name: one * np.float32(min(1, limit / norm)) for name, one in gradients.items()}

    return clip


def clip_each(limit: float) -> Callable[[Tree], Tree]:
    """Clip the norm of each gradient."""
    return lambda gradients: {name: clip_all(limit)({name: one})[name] for name, one in gradients.items()}


def clip_values(limit: float) -> Callable[[Tree], Tree]:
    """Clip each value."""
    return lambda gradients: {name: np.clip(one, -limit, limit) for name, one in gradients.items()}
