"""Checks of one engine on the GPU, like `tests.engines.engine_fixtures`; each returns a text for the summary."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from polybench.engines.job import Job
from polybench.networks.lenet import LENET
from polybench.networks.optimizers import Optimizer
from polybench.schema.options import Workload
from tests.engines.engine_fixtures import EngineFixture

FAST_COMPILATION = {"XLA_FLAGS": "--xla_gpu_autotune_level=0"}
"""XLA does not time the algorithms of each convolution, most of a compilation (`dlframeworks-cnn`: 25 s)."""

ENVIRONMENT = {"CUDA_VISIBLE_DEVICES": "0", **FAST_COMPILATION}
"""Without the first variable, the workers of these tests would see no GPU, like workers on the CPU."""


class GpuEngineFixture(EngineFixture):
    """An engine with its framework loaded, which builds on the GPU."""

    def build(
        self, device: str = "cuda", precision: str = "fp32", variants: tuple[str, ...] = (), dtype: str = "float32"
    ) -> None:
        super().build(device, precision, variants, dtype)

    def build_large(self, batch_size: int, variants: tuple[str, ...] = ()) -> None:
        """Return a fixture with repeated images, so that the GPU takes longer than its host."""
        repeats = batch_size // self.images.shape[1]
        workload = Workload("lenet", "noise", batch_size, Optimizer(), "fp32", 2)
        self.engine.build(Job(LENET, workload, "cuda", "float32", variants), self.weights)
        self.engine.load(*(np.repeat(part, repeats, axis=1) for part in (self.images, self.labels)))

    def describe_allocations(self) -> str:
        """Describe the allocations of steps with a large batch on the GPU, and the engine's peak."""
        self.build_large(512)
        self.engine.run_steps(0, 4)
        found, peak = self.engine.count_allocations(0, 4).device, self.engine.device_peak_bytes()
        assert found is not None
        assert found.bytes_per_step
        assert peak
        return f"{found.count_per_step:g} a step, {found.bytes_per_step / 2**20:.1f} MiB; peak {peak}"

    def losses(self, steps: int = 4) -> list[float]:
        """Return the losses of the first steps from the initial weights."""
        self.engine.reset()
        found = []
        for step in range(steps):
            self.engine.run_steps(step, 1)
            found.append(self.engine.loss())
        return found


Finding = Callable[[GpuEngineFixture], str]
Find = Callable[[str, Finding], None]


def on_gpu(engine: str) -> Callable[[Finding], Callable[[Find], None]]:
    """Create a test from a check, which runs in the engine's process; its text goes into the report."""

    def decorate(check: Finding) -> Callable[[Find], None]:
        def test(find: Find) -> None:
            find(engine, check)

        test.check = check  # type: ignore[attr-defined]  # not __wrapped__: pytest would take its arguments for fixtures
        return test

    return decorate


def run(module: str, name: str, engine: str, folder: Path) -> str:
    """Run the check of this name in the engine's process."""
    found = getattr(importlib.import_module(module), name)
    text: str = getattr(found, "check", found)(_load_fixture(engine, folder))
    return text


_load_fixture = functools.cache(GpuEngineFixture)
