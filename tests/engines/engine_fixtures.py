"""Checks of one engine, which run in a process that `conftest.processes` started.

A check is a function of an `EngineFixture`. `@in_process_of("torch")` turns it into a test, which sends the
function's name to the process. Tests shared by several engines call `run_check("torch", check)`.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from polybench.data.batches import augment, augmentation_stream
from polybench.engines import ENGINES
from polybench.engines.base import Array, Engine, PipelineInput
from polybench.engines.job import Job
from polybench.errors import EngineUnavailable
from polybench.networks.initial_weights import initial_weights
from polybench.networks.layers import Layer
from polybench.networks.lenet import LENET
from polybench.networks.optimizers import Optimizer
from polybench.schema.options import Workload

RunCheck = Callable[..., None]
"""`run_check(configuration, check, **environment)`: see `conftest.run_check`."""


class FrameworkMissing(Exception):
    """Reason for skipping a test; pytest's own exception cannot be sent between processes."""


class EngineFixture:
    """Engine with its framework loaded, lenet's initial weights and four batches of eight images."""

    def __init__(self, engine_name: str, folder: Path) -> None:
        self.engine = _load_engine(engine_name)
        self.images = np.load(folder / "images.npy", mmap_mode="r")
        self.labels = np.load(folder / "labels.npy")
        with np.load(folder / "weights.npz") as file:
            self.weights = dict(file)

    def build(
        self,
        device: str = "cpu",
        precision: str = "fp32",
        variants: tuple[str, ...] = (),
        dtype: str = "float32",
        threads: int = 2,
        optimizer: Optimizer | None = None,
    ) -> None:
        """Build lenet and load the batches."""
        workload = Workload("lenet", "noise", self.images.shape[1], optimizer or Optimizer(), precision, threads)
        self.engine.build(Job(LENET, workload, device, dtype, variants), self.weights)
        self.engine.load(self.images, self.labels)

    def build_layers(self, layers: tuple[Layer, ...], repeats: int = 1, variants: tuple[str, ...] = ()) -> None:
        """Build a network other than lenet, and load batches with each image `repeats` times."""
        model = msgspec.structs.replace(LENET, layers=layers)
        workload = Workload("lenet", "noise", repeats * self.images.shape[1], Optimizer(), "fp32", 2)
        self.engine.build(Job(model, workload, "cpu", "float32", variants), initial_weights(model, 0))
        self.engine.load(*(np.repeat(array, repeats, axis=1) for array in (self.images, self.labels)))


def _load_engine(name: str) -> Engine:
    module, _, factory = ENGINES[name].factory.partition(":")
    try:
        engine: Engine = getattr(importlib.import_module(module), factory)()
    except EngineUnavailable as missing:
        raise FrameworkMissing(missing.reason) from None
    return engine


load_fixture = functools.cache(EngineFixture)

Check = Callable[[EngineFixture], None]


def in_process_of(*configurations: Any, **environment: str) -> Callable[[Check], Callable[..., None]]:
    """Turn a check into a test that runs in the process of each of these engines, with this environment.

    A configuration names only the variants that the process needs; `EngineFixture.build` takes its own.
    """

    def decorate(check: Check) -> Callable[..., None]:
        @pytest.mark.parametrize("configuration", configurations)
        def test(run_check: RunCheck, configuration: str) -> None:
            run_check(configuration, check, **environment)

        test.check = check  # not __wrapped__: pytest would treat its arguments as fixtures
        return test

    return decorate


def run_check_by_name(module: str, name: str, engine: str, folder: Path) -> None:
    """Run the check of this name; called in the engine's process."""
    test = getattr(importlib.import_module(module), name)
    getattr(test, "check", test)(load_fixture(engine, folder))


def make_pipeline_input(
    workers: int, augmented: bool, shape: tuple[int, ...] = (3, 32, 32)
) -> tuple[PipelineInput, Array]:
    """Make four batches of six images, and the batches that the pipeline should return."""
    random = np.random.default_rng(1)
    pixels = random.integers(0, 256, (24, *shape), dtype=np.uint8)
    order, augmentations = random.permutation(24).reshape(4, 6), augmentation_stream(4, 6, seed=1, steps=4)
    source = PipelineInput(pixels, random.integers(0, 10, 24), order, augmentations if augmented else None, workers)
    images = [
        augment(pixels[indices], augmentation) if augmented else pixels[indices]
        for indices, augmentation in zip(order, augmentations, strict=True)
    ]
    return source, np.stack(images).astype(np.float32) / np.float32(255)
