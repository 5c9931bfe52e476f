"""Runs a user's program: a Python file with the functions that docs/guides/own_program.md describes."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np

from polybench.engines.base import Array, PipelineInput, Weights
from polybench.engines.job import EngineInfo, Job, NumericalConventions
from polybench.engines.program import frameworks
from polybench.engines.shared.batches import BufferedBatches, prefault
from polybench.engines.shared.float64 import float64_tensors
from polybench.engines.shared.python_engine import PythonEngine
from polybench.engines.shared.replayed import ReplayedEngine
from polybench.engines.source import read_source
from polybench.errors import BadInput, ConfigurationFailed, EngineUnavailable
from polybench.schema.resources import Allocations


class ProgramEngine(ReplayedEngine, PythonEngine):
    """The training step of a user's file. The user's code runs with the user's rights."""

    timing_resolution: Literal["step", "block"] = "step"

    def __init__(self, path: str) -> None:
        super().__init__()
        try:
            self._source = read_source(Path(path))
        except BadInput as error:
            raise ConfigurationFailed(str(error)) from None
        self._program = self._run(self._source.text)
        self._dtype = "float32"

    def _run(self, text: str) -> ModuleType:
        """Run the text as a module at the program's path, as Python runs a program, but for its main part."""
        path = self._source.path
        module = ModuleType(f"{path.stem} (program)")  # not `json` for a file json.py
        module.__file__ = str(path)
        sys.modules[module.__name__] = module  # dataclasses look their module up
        if str(path.parent) not in sys.path:
            sys.path.insert(0, str(path.parent))
        with _guarded("while it was imported"):
            exec(compile(text, path, "exec", dont_inherit=True), module.__dict__)  # not the __future__ of this file
        return module

    def probe(self) -> EngineInfo:
        return EngineInfo(frameworks.versions(), {}, frameworks.devices())

    def build(self, job: Job, weights: Weights) -> None:
        source, self._job = self._source, job
        if job.device != "cpu" and not source.has_device:
            raise EngineUnavailable(
                f'{source.path.name} has no constant DEVICE = "cuda:0" at its top', "add it, or use --devices cpu"
            )
        self.timing_resolution = "step" if job.device == "cpu" else "block"
        frameworks.set_threads(job.workload.threads)
        self.program = source.adapted(job.dtype, job.device)
        if is_other_dtype := self._dtype != job.dtype:
            frameworks.set_default_dtype(job.dtype)
        if is_other_dtype or self.program != source.text:
            self._program = self._run(self.program)
        self._dtype = job.dtype
        self.set_initial_weights(weights)
        with _guarded("in setup"):
            self._state = self._setup()
        self._train_step = self._program.train_step
        self._wait: Callable[[Any], object] = frameworks.synchronizer(self._program)

    def _synchronize(self, result: object = None) -> None:
        self._wait((self._state, result))

    def conventions(self) -> NumericalConventions:
        return frameworks.conventions(self._job)

    def _setup(self) -> Any:
        return self._program.setup(self._weights()) if self._source.takes_weights else self._program.setup()

    def _weights(self) -> Weights:
        """Return copies of the initial weights, which the program may train in place."""
        return {name: array.copy() for name, array in self._initial.items()}

    def load(self, images: Array, labels: Array) -> None:
        prefault(images)
        with _guarded("in load"):
            super().load(images, labels)

    def open_pipeline(self, source: PipelineInput) -> None:
        self.timing_resolution = "block"
        order = source.order

        def start(first: int) -> Iterator[Any]:
            with _guarded("in batches"):
                yield from self._program.batches(source.images, source.labels, order[first:])
            raise ConfigurationFailed(f"batches ended early: expected {len(order) - first} from batch {first} on")

        self._batches = BufferedBatches(len(order), start)

    def reset(self) -> None:
        self.steps = []
        with _guarded("in reset"):
            if hasattr(self._program, "reset"):
                self._program.reset(self._state, self._weights())
            else:
                self._state = self._setup()

    def run_steps(self, first: int, n: int) -> float:
        with _guarded(f"in step {first}" if n == 1 else f"in steps {first} to {first + n - 1}"):
            seconds = super().run_steps(first, n)
        self.steps += range(first, first + n)
        return seconds

    def _set_step(self, step: int) -> None:
        """Leave the program's state alone: a program counts its steps itself."""

    def loss(self) -> float:
        try:
            return super().loss()
        except Exception as error:
            reason = f"train_step returned no loss: {_first_line(error)}"
            raise ConfigurationFailed(f"{self._source.path.name}: {reason}") from None

    def logits(self, images: Array) -> Array:  # noqa: ARG002
        raise EngineUnavailable("a program's accuracy is not measured", "omit --epochs and targets")

    def current_weights(self) -> Weights:
        """Return the weights by name, if the program has them."""
        if not hasattr(self._program, "weights"):
            return {}
        with _guarded("in weights"):
            return {name: np.array(array) for name, array in self._program.weights(self._state).items()}

    def count_allocations(self, first: int, n: int) -> Allocations:
        return frameworks.count_allocations(lambda: self.run_steps(first, n), n, self._job.device)

    def device_bytes_in_use(self) -> int | None:
        return None if self._job.device == "cpu" else frameworks.device_bytes_in_use()

    def float64_tensors(self) -> list[str]:
        return float64_tensors(state=self._state, batch=self._batches[0], loss=self._loss)


@contextlib.contextmanager
def _guarded(when: str) -> Iterator[None]:
    """Turn what a user's code raises into a failure of this row, with its traceback in the worker's log.

    A copy of this process that the code has forked ends here: it must not write files nor answer requests.
    """
    process = os.getpid()
    try:
        yield
    except (EngineUnavailable, ConfigurationFailed):
        raise
    except SystemExit as error:
        raise ConfigurationFailed(f"the program called exit({error.code or 0}) {when}") from None
    except Exception as error:
        traceback.print_exc()
        raise ConfigurationFailed(f"{type(error).__name__} {when}: {_first_line(error)}") from error
    finally:
        if os.getpid() != process:
            os._exit(0)


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return text[0] if text else "no message"


def make_engine(path: str) -> ProgramEngine:
    """Import the program at this path."""
    return ProgramEngine(path)
