"""What one engine does with `lenet`, in a process that `conftest.processes` started for it."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from polybench.core.errors import Unavailable
from polybench.core.job import Job
from polybench.core.spec import Workload
from polybench.engines import ENGINES
from polybench.engines.base import Array, Engine, Weights
from polybench.models import MODELS


class FrameworkMissing(Exception):
    """Why a test is to be skipped: pytest's own exception cannot be sent from process to process."""


def outcome(name: str, variants: str, dtype: str, precision: str, folder: Path) -> dict[str, Any]:
    """Losses, snapshots and evaluations by name.

    `variants` is joined by "+", or "". `folder` holds images.npy, labels.npy and weights.npz. In float32 it
    is a snapshot and three steps: that nothing depends on how steps are divided, or on what was before, is
    seen in float64, and each way costs compilers further code.
    """
    images = np.load(folder / "images.npy", mmap_mode="r")
    labels = np.load(folder / "labels.npy")
    with np.load(folder / "weights.npz") as file:
        weights = dict(file)
    model = MODELS["lenet"]
    workload = Workload(model.name, "noise", images.shape[1], model.optimizer, precision, 2)
    job = Job(model, workload, "cpu", dtype, tuple(filter(None, variants.split("+"))))

    engine = loaded_engine(name)
    engine.build(job, weights)
    engine.load(images, labels)

    out: dict[str, object] = {}
    engine.reset()
    take(engine, 0, "first", out)
    if dtype == "float32":
        out["losses"] = train(engine, 3)
    else:
        train_in_all_ways(engine, job, weights, (images, labels), out)
    engine.close()
    return {name: np.asarray(value) for name, value in out.items()}


def train_in_all_ways(
    engine: Engine, job: Job, weights: Weights, batches: tuple[Array, Array], out: dict[str, object]
) -> None:
    """With snapshots and without, after a reset and after another build, in one block, from other weights."""
    images, labels = batches
    take(engine, 0, "again", out)
    out["losses"] = train(engine, 3, out)

    engine.reset()
    take(engine, 0, "reset", out)
    out["losses_after_reset"] = train(engine, 3)

    engine.reset()
    engine.run_steps(0, 3)
    out["loss_of_block"] = engine.loss()
    take(engine, 0, "block", out)

    engine.reset()
    engine.run_steps(len(images), 1)  # one epoch later: the batches start again
    out["loss_of_next_epoch"] = engine.loss()

    engine.build(job, weights)  # a second time in the same process
    engine.load(images, labels)
    engine.reset()
    out["losses_after_build"] = train(engine, 3)

    engine.start_from({name: np.roll(value, 1) for name, value in weights.items()})
    engine.reset()
    out["correct_of_other_weights"] = correct(engine, images, labels)
    out["losses_of_other_weights"] = train(engine, 3)
    out["correct_after_training"] = correct(engine, images, labels)


def loaded_engine(name: str) -> Engine:
    """A new engine with its framework."""
    module, _, factory = ENGINES[name].factory.partition(":")
    engine: Engine = getattr(importlib.import_module(module), factory)()
    try:
        engine.load_framework()
    except Unavailable as missing:
        raise FrameworkMissing(missing.reason) from None
    return engine


def train(engine: Engine, steps: int, out: dict[str, object] | None = None) -> list[float]:
    """One step at a time; with `out`, a snapshot before each next batch, and two in between."""
    losses = []
    for step in range(steps):
        assert engine.run_steps(step, 1) > 0
        losses.append(engine.loss())
        if out is not None:
            take(engine, step + 1, f"step{step + 1}", out)
    return losses


def correct(engine: Engine, images: Array, labels: Array) -> list[int]:
    """Of batches of the training's size, and of two of other sizes, as the last of the test images may be."""
    whole = zip(images, labels, strict=True)
    other = ((images[0, :size], labels[0, :size]) for size in (5, 1))
    return [engine.correct(x, y) for x, y in (*whole, *other)]


def take(engine: Engine, step: int, label: str, out: dict[str, object]) -> None:
    loss, gradients, weights = engine.snapshot(step)
    out[f"{label}/loss"] = loss
    out |= {f"{label}/gradient/{name}": value for name, value in gradients.items()}
    out |= {f"{label}/weight/{name}": value for name, value in weights.items()}
