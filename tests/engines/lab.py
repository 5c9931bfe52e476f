"""Checks on one engine: tests that run in the process that `conftest.processes` started for it.

A check is a function of a `Lab`. `@in_process_of("torch")` makes a test of it, which sends the function's
name there; `run_check("torch", check)` does the same from a test that several engines share.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from polybench.core.job import Job
from polybench.core.layers import Layer
from polybench.core.optimizers import Optimizer
from polybench.core.spec import Workload
from polybench.data.augmentation import augment, decision_stream
from polybench.engines.base import Array, Stream
from polybench.models.initial_weights import initial_weights
from polybench.models.lenet import LENET
from tests.engines.child import loaded_engine

RunCheck = Callable[..., None]
"""`run_check(cell, check, **environment)`: see `conftest.run_check`."""


class Lab:
    """One engine with its framework loaded, and what it can be given: four batches of eight images."""

    def __init__(self, engine_name: str, folder: Path) -> None:
        self.engine = loaded_engine(engine_name)
        self.images = np.load(folder / "images.npy", mmap_mode="r")
        self.labels = np.load(folder / "labels.npy")
        with np.load(folder / "weights.npz") as file:
            self.weights = dict(file)

    def build(self, device: str = "cpu", precision: str = "fp32", variants: tuple[str, ...] = ()) -> None:
        """Build lenet and load the batches."""
        workload = Workload("lenet", "noise", self.images.shape[1], Optimizer(), precision, 2)
        self.engine.build(Job(LENET, workload, device, "float32", variants), self.weights)
        self.engine.load(self.images, self.labels)

    def build_layers(
        self, layers: tuple[Layer, ...], repeats: int = 1, variants: tuple[str, ...] = ()
    ) -> None:
        """Build another network than lenet, and load batches with each image `repeats` times."""
        model = msgspec.structs.replace(LENET, layers=layers)
        workload = Workload("lenet", "noise", repeats * self.images.shape[1], Optimizer(), "fp32", 2)
        self.engine.build(Job(model, workload, "cpu", "float32", variants), initial_weights(model, 0))
        self.engine.load(*(np.repeat(part, repeats, axis=1) for part in (self.images, self.labels)))


Check = Callable[[Lab], None]


def in_process_of(cell: str, **environment: str) -> Callable[[Check], Callable[[RunCheck], None]]:
    """Make a test of a check: it runs in that engine's process, which has this environment as well.

    Variants of `cell` are those that the process needs; `Lab.build` is given its own.
    """

    def decorate(check: Check) -> Callable[[RunCheck], None]:
        def test(run_check: RunCheck) -> None:
            run_check(cell, check, **environment)

        test.check = check  # not __wrapped__: pytest would take its arguments for fixtures
        return test

    return decorate


def run(module: str, name: str, engine: str, folder: Path) -> None:
    """In the engine's process: run the check of this name."""
    found = getattr(importlib.import_module(module), name)
    getattr(found, "check", found)(_lab(engine, folder))


_lab = functools.cache(Lab)


def stream(workers: int, augmented: bool, shape: tuple[int, ...] = (3, 32, 32)) -> tuple[Stream, Array]:
    """Four batches of six images, and those batches as they should come out."""
    random = np.random.default_rng(1)
    pixels = random.integers(0, 256, (24, *shape), dtype=np.uint8)
    order, decisions = random.permutation(24).reshape(4, 6), decision_stream(4, 6, seed=1, steps=4)
    given = Stream(pixels, random.integers(0, 10, 24), order, decisions if augmented else None, workers)
    varied = [
        augment(pixels[indices], chosen) if augmented else pixels[indices]
        for indices, chosen in zip(order, decisions, strict=True)
    ]
    return given, np.stack(varied).astype(np.float32) / np.float32(255)
