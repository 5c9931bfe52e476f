"""Training of `lenet` with one engine, in a process that `conftest.processes` started."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from polybench.engines import ENGINES
from polybench.engines.base import Array, Engine, Weights
from polybench.engines.job import Job
from polybench.errors import EngineUnavailable
from polybench.networks import MODELS
from polybench.schema.options import Workload


class FrameworkMissing(Exception):
    """Reason for skipping a test; pytest's own exception cannot be sent between processes."""


def train_lenet(name: str, variants: str, dtype: str, precision: str, folder: Path) -> dict[str, Any]:
    """Train, and return losses, snapshots and evaluations by name.

    `variants` are joined by "+", or empty. `folder` contains images.npy, labels.npy and weights.npz. float32
    records a snapshot and three steps. float64 also checks that results do not depend on earlier calls or on
    the division into blocks, which would make compilers generate more code.
    """
    images = np.load(folder / "images.npy", mmap_mode="r")
    labels = np.load(folder / "labels.npy")
    with np.load(folder / "weights.npz") as file:
        weights = dict(file)
    model = MODELS["lenet"]
    workload = Workload(model.name, "noise", images.shape[1], model.optimizer, precision, 2)
    job = Job(model, workload, "cpu", dtype, tuple(filter(None, variants.split("+"))))

    engine = load_engine(name)
    engine.build(job, weights)
    engine.load(images, labels)

    out: dict[str, object] = {}
    engine.reset()
    record_snapshot(engine, 0, "first", out)
    if dtype == "float32":
        out["losses"] = train_steps(engine, 3)
    else:
        train_repeatedly(engine, job, weights, (images, labels), out)
    engine.close()
    return {name: np.asarray(value) for name, value in out.items()}


def train_repeatedly(
    engine: Engine, job: Job, weights: Weights, batches: tuple[Array, Array], out: dict[str, object]
) -> None:
    """Train with and without snapshots, after a reset, in one block, after another build, from other weights."""
    images, labels = batches
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

    engine.build(job, weights)  # a second time in the same process
    engine.load(images, labels)
    engine.reset()
    out["losses_after_build"] = train_steps(engine, 3)

    engine.set_initial_weights({name: np.roll(value, 1) for name, value in weights.items()})
    engine.reset()
    out["correct_of_other_weights"] = count_correct(engine, images, labels)
    out["losses_of_other_weights"] = train_steps(engine, 3)
    out["correct_after_training"] = count_correct(engine, images, labels)


def load_engine(name: str) -> Engine:
    """Import a framework and make its engine."""
    module, _, factory = ENGINES[name].factory.partition(":")
    try:
        engine: Engine = getattr(importlib.import_module(module), factory)()
    except EngineUnavailable as missing:
        raise FrameworkMissing(missing.reason) from None
    return engine


def train_steps(engine: Engine, steps: int, out: dict[str, object] | None = None) -> list[float]:
    """Train one step at a time; with `out`, record a snapshot before the next batch."""
    losses = []
    for step in range(steps):
        assert engine.run_steps(step, 1) > 0
        losses.append(engine.loss())
        if out is not None:
            record_snapshot(engine, step + 1, f"step{step + 1}", out)
    return losses


def count_correct(engine: Engine, images: Array, labels: Array) -> list[int]:
    """Evaluate all batches, and two smaller ones, since the last test batch may be smaller."""
    batches = zip(images, labels, strict=True)
    smaller = ((images[0, :size], labels[0, :size]) for size in (5, 1))
    return [engine.count_correct(x, y) for x, y in (*batches, *smaller)]


def record_snapshot(engine: Engine, step: int, label: str, out: dict[str, object]) -> None:
    loss, gradients, weights = engine.snapshot(step)
    out[f"{label}/loss"] = loss
    out |= {f"{label}/gradient/{name}": value for name, value in gradients.items()}
    out |= {f"{label}/weight/{name}": value for name, value in weights.items()}
