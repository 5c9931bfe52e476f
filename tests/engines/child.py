"""Training of `lenet` with one engine, in a process that `conftest.processes` started."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from polybench.engines.base import Array, Engine, Evaluation
from tests.engines.engine_fixtures import EngineFixture, load_fixture


def train_lenet(name: str, variants: str, dtype: str, precision: str, folder: Path) -> dict[str, Any]:
    """Train, and return losses, snapshots and evaluations by name.

    `variants` are joined by "+", or empty. `folder` has the files of `conftest.problem`. float32 records a snapshot and
    three steps. float64 also checks that results do not depend on earlier calls or on the division into blocks, which
    would make compilers generate more code.
    """
    fixture = load_fixture(name, folder)
    build = partial(fixture.build, "cpu", precision, tuple(filter(None, variants.split("+"))), dtype)
    build()
    engine = fixture.engine

    out: dict[str, object] = {}
    engine.reset()
    record_snapshot(engine, 0, "first", out)
    if dtype == "float32":
        out["losses"] = train_steps(engine, 3)
    else:
        train_repeatedly(fixture, build, out)
    engine.close()
    return {name: np.asarray(value) for name, value in out.items()}


def train_repeatedly(fixture: EngineFixture, build: Callable[[], None], out: dict[str, object]) -> None:
    """Train with and without snapshots, after a reset, in one block, after another build, from other weights."""
    engine, images, labels = fixture.engine, fixture.images, fixture.labels
    record_snapshot(engine, 0, "again", out)
    out["losses"] = train_steps(engine, 3, out)

    engine.reset()
    record_snapshot(engine, 0, "reset", out)
    out["losses_after_reset"] = train_steps(engine, 3)

    engine.reset()
    engine.run_steps(0, 3)
    out["loss_of_block"] = engine.loss()
    record_snapshot(engine, 0, "block", out)

    engine.reset()
    engine.run_steps(len(images), 1)  # the next epoch starts with the first batch again
    out["loss_of_next_epoch"] = engine.loss()

    build()  # a second time in the same process
    engine.reset()
    out["losses_after_build"] = train_steps(engine, 3)

    engine.set_initial_weights({name: np.roll(value, 1) for name, value in fixture.weights.items()})
    engine.reset()
    out["evaluation_of_other_weights"] = evaluate(engine, images, labels)
    out["losses_of_other_weights"] = train_steps(engine, 3)
    out["evaluation_after_training"] = evaluate(engine, images, labels)


def train_steps(engine: Engine, steps: int, out: dict[str, object] | None = None) -> list[float]:
    """Train one step at a time; with `out`, record a snapshot before the next batch."""
    losses = []
    for step in range(steps):
        assert engine.run_steps(step, 1) > 0
        losses.append(engine.loss())
        if out is not None:
            record_snapshot(engine, step + 1, f"step{step + 1}", out)
    return losses


def evaluate(engine: Engine, images: Array, labels: Array) -> list[Evaluation]:
    """Evaluate all batches, and two smaller ones, since the last test batch may be smaller."""
    batches = zip(images, labels, strict=True)
    smaller = ((images[0, :size], labels[0, :size]) for size in (5, 1))
    return [engine.evaluate(x, y) for x, y in (*batches, *smaller)]


def record_snapshot(engine: Engine, step: int, label: str, out: dict[str, object]) -> None:
    loss, gradients, weights = engine.snapshot(step)
    out[f"{label}/loss"] = loss
    out |= {f"{label}/gradient/{name}": value for name, value in gradients.items()}
    out |= {f"{label}/weight/{name}": value for name, value in weights.items()}
