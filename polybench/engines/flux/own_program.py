"""Runs a user's program in Julia, in the worker's Julia session, with the loop that times Flux's programs."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from polybench.engines.base import Array, PipelineInput, Weights
from polybench.engines.flux.engine import FluxEngine, addresses, empty_batches
from polybench.engines.flux.julia.discovery import NAME, first_error_line, manifest_file
from polybench.engines.flux.julia.environment import threads
from polybench.engines.flux.julia.program import include_own, load_own_package
from polybench.engines.flux.validation import conventions
from polybench.engines.job import Job, NumericalConventions
from polybench.engines.shared.batches import as_dtype
from polybench.engines.shared.replayed import ReplayedEngine
from polybench.engines.source import read_source
from polybench.errors import BadInput, ConfigurationFailed, EngineUnavailable
from polybench.networks.source_text import literal


class JuliaProgramEngine(ReplayedEngine, FluxEngine):
    """The training step of a user's file, in a module of its own."""

    def __init__(self, path: str) -> None:
        try:
            self._source = read_source(Path(path))
        except BadInput as error:
            raise ConfigurationFailed(str(error)) from None
        ReplayedEngine.__init__(self)
        FluxEngine.__init__(self)

    def build(self, job: Job, weights: Weights) -> None:
        if job.device != "cpu":
            raise EngineUnavailable("a program in Julia runs on the CPU", "use --devices cpu")
        self._job, self.is_forward_pass, self._shapes = job, False, job.model.tensor_shapes()
        self._polybench.set_blas_threads(threads(job.workload.threads, job.variants)[1])
        arrays = as_dtype({name: weights[name] for name in self._shapes}, job.dtype)
        self.program = self._source.adapted(job.dtype, job.device)
        with self._guarded(""):
            module = self._load_module()
        with self._guarded("in setup"):
            self._trainer = self._python.build_own_program(
                module, job.dtype, "\n".join(arrays), addresses(arrays), tuple(self._shapes.values())
            )

    def _load_module(self) -> Any:
        """Return the program as a module: that of a package if this worker times it, and the program can be one."""
        path, manifest = self._source.path, manifest_file(self._julia)
        module = None
        if self._uses_package() and manifest is not None:
            shapes = _tuple(map(_tuple, self._shapes.values()))
            names, batches = literal("\n".join(self._shapes)), empty_batches(self._job, self._job.workload.batch_size)
            workload = f"{NAME}.Python.warm_up_own(Program, {names}, {shapes}, {batches})"
            module = load_own_package(self._main, path, self.program, workload, manifest.read_text("utf-8"))
        return include_own(self._main, path, self.program) if module is None else module

    @contextlib.contextmanager
    def _guarded(self, when: str) -> Iterator[None]:
        """Turn what the user's code raises into a failure of this row, with its stack trace in the worker's log."""
        try:
            yield
        except Exception as error:
            traceback.print_exc()
            when = "in batches" if self._polybench.is_reading(self._batches) else when
            reason = f"{self._source.path.name}{when and f', {when}'}: {first_error_line(error)}"
            raise ConfigurationFailed(reason) from error

    def conventions(self) -> NumericalConventions:
        return conventions(self._polybench, self._trainer, self._job)

    def load(self, images: Array, labels: Array) -> None:
        with self._guarded("in load"):
            super().load(images, labels)

    def open_pipeline(self, source: PipelineInput) -> None:
        self.timing_resolution = "block"
        arrays = [np.ascontiguousarray(one) for one in (source.images, source.labels, source.order)]
        self._pipeline_arrays = [*arrays]  # Julia uses this memory in place, so it has to live as long as the pipeline
        images, labels, order = (array.ctypes.data for array in arrays)
        self._batches = self._python.open_own_pipeline(
            self._trainer, images, source.images.shape, labels, order, source.order.shape
        )

    def drain_pipeline(self, first: int, n: int) -> float:
        with self._guarded("in batches"):
            return super().drain_pipeline(first, n)

    def reset(self) -> None:
        self.steps = []
        with self._guarded("in reset!" if "reset!" in self._source.functions else "in setup"):
            super().reset()

    def run_steps(self, first: int, n: int) -> float:
        with self._guarded(f"in step {first}" if n == 1 else f"in steps {first} to {first + n - 1}"):
            seconds = super().run_steps(first, n)
        self.steps += range(first, first + n)
        return seconds

    def current_weights(self) -> Weights:
        if "weights" not in self._source.functions:
            return {}
        weights = {name: np.empty(shape, self._job.dtype) for name, shape in self._shapes.items()}
        with self._guarded("in weights"):
            self._python.write_weights_b(addresses(weights), self._trainer)
        return weights

    def logits(self, images: Array) -> Array:  # noqa: ARG002
        raise EngineUnavailable("a program's accuracy is not measured", "omit --epochs and targets")

    def training_state(self) -> Weights:
        return {}


def _tuple(values: Iterable[object]) -> str:
    """Return the tuple of these values in Julia."""
    return f"({''.join(f'{value}, ' for value in values)})"


def make_engine(path: str) -> JuliaProgramEngine:
    """Start Julia, and read the program at this path."""
    return JuliaProgramEngine(path)
