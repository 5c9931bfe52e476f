"""Fixtures that run each engine in its own process, since two frameworks in one process can crash."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polybench.engines import ENGINES
from polybench.errors import EngineUnavailable
from polybench.networks.initial_weights import initial_weights
from polybench.networks.lenet import LENET
from polybench.parity_check.check import ParityChecker
from tests.engine_matrix import MISSING_LAYERS
from tests.engine_workers import Processes, fast_compilation
from tests.engines import engine_fixtures
from tests.engines.child import train_lenet
from tests.worker_sessions import InProcess

Outcome = dict[str, Any]
RunLenet = Callable[..., Outcome]

BATCHES, BATCH_SIZE = 4, 8


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with four small batches of noise and lenet's initial weights."""
    folder = tmp_path_factory.mktemp("problem")
    random = np.random.default_rng(0)
    np.save(folder / "images.npy", random.random((BATCHES, BATCH_SIZE, 3, 32, 32), dtype=np.float32))
    np.save(folder / "labels.npy", random.integers(0, 10, (BATCHES, BATCH_SIZE)))
    np.savez(folder / "weights.npz", **initial_weights(LENET, 0))
    return folder


def result_or_skip(task: Future[Any]) -> Any:
    """Return the result of the engine's process, or skip the test if the framework is missing."""
    try:
        return task.result()
    except engine_fixtures.FrameworkMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def run_check(problem: Path, processes: Processes) -> engine_fixtures.RunCheck:
    """`run_check(configuration, check, **environment)`: run a check in a process of that configuration.

    Julia and XLA do not optimize unless the environment says so.
    """

    def run(configuration: str, check: engine_fixtures.Check, **environment: str) -> None:
        engine, *variants = configuration.split("+")
        fast = fast_compilation(configuration)
        process = processes(engine, tuple(variants), **(fast | environment))
        result_or_skip(
            process.submit(engine_fixtures.run_check_by_name, check.__module__, check.__name__, engine, problem)
        )

    return run


@pytest.fixture(scope="module")
def run_lenet(problem: Path, processes: Processes) -> RunLenet:
    """`run_lenet(engine with variants, dtype, precision)`: the engine's `outcome`."""

    @functools.cache
    def run_lenet(name: str, dtype: str, precision: str = "fp32") -> Outcome:
        engine, _, variants = name.partition("+")
        process = processes(engine, tuple(variants.split("+")))
        return result_or_skip(process.submit(train_lenet, engine, variants, dtype, precision, problem))

    return run_lenet


@contextlib.contextmanager
def skip_unsupported(configuration: str) -> Iterator[None]:
    """Skip the test if a new engine lacks a layer of the network."""
    try:
        yield
    except EngineUnavailable as missing:
        if (engine := configuration.partition("+")[0]) in MISSING_LAYERS:
            raise
        pytest.skip(f"{missing.reason}: add {engine} to MISSING_LAYERS in tests/engine_matrix.py")


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> ParityChecker:
    """Checker shared by all engines, so that the reference trains only once."""
    reference = InProcess(ENGINES["reference"].factory)
    return ParityChecker(reference, tmp_path_factory.mktemp("scratch"), tmp_path_factory.mktemp("cache"))
