"""Checks on one engine on the GPU: as `tests.engines.lab`, but each says what it found, for the summary."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from polybench.core.job import Job
from polybench.core.optimizers import Optimizer
from polybench.core.spec import Workload
from polybench.models.lenet import LENET
from tests.engines.lab import Lab

ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "0"}
"""Without it the workers of these tests would see no GPU, as any that is measured on the CPU."""


class GpuLab(Lab):
    """One engine with its framework loaded; it builds on the GPU."""

    def build(self, device: str = "cuda", precision: str = "fp32", variants: tuple[str, ...] = ()) -> None:
        super().build(device, precision, variants)

    def build_large(self, batch_size: int, variants: tuple[str, ...] = ()) -> None:
        """The same with each image many times: arithmetic enough for a GPU to be behind its host."""
        repeats = batch_size // self.images.shape[1]
        workload = Workload("lenet", "noise", batch_size, Optimizer(), "fp32", 2)
        self.engine.build(Job(LENET, workload, "cuda", "float32", variants), self.weights)
        self.engine.load(*(np.repeat(part, repeats, axis=1) for part in (self.images, self.labels)))

    def allocations_are_told(self) -> str:
        """What steps of a large batch allocate on the GPU, and the peak, as the engine tells both."""
        self.build_large(512)
        self.engine.run_steps(0, 4)
        found, peak = self.engine.count_allocations(0, 4).device, self.engine.device_peak_bytes()
        assert found is not None
        assert found.bytes_per_step
        assert peak
        return f"{found.count_per_step:g} a step, {found.bytes_per_step / 2**20:.1f} MiB; peak {peak}"

    def losses(self, steps: int = 4) -> list[float]:
        """Of the first steps from the initial weights."""
        self.engine.reset()
        found = []
        for step in range(steps):
            self.engine.run_steps(step, 1)
            found.append(self.engine.loss())
        return found


Finding = Callable[[GpuLab], str]
Find = Callable[[str, Finding], None]


def on_gpu(engine: str) -> Callable[[Finding], Callable[[Find], None]]:
    """Make a test of a check: it runs in that engine's process, and what it says goes into the report."""

    def decorate(check: Finding) -> Callable[[Find], None]:
        def test(find: Find) -> None:
            find(engine, check)

        test.check = check  # type: ignore[attr-defined]  # not __wrapped__: pytest would take its arguments for fixtures
        return test

    return decorate


def run(module: str, name: str, engine: str, folder: Path) -> str:
    """In the engine's process: run the check of this name."""
    found = getattr(importlib.import_module(module), name)
    said: str = getattr(found, "check", found)(_lab(engine, folder))
    return said


_lab = functools.cache(GpuLab)
