"""Engines are driven in processes of their own: two frameworks in one process can crash."""

from __future__ import annotations

import functools
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from polybench.engines import ENGINES
from polybench.models.initial_weights import initial_weights
from polybench.models.lenet import LENET
from polybench.wire.environment import worker_environment
from polybench.worker.__main__ import die_with_parent
from tests.engines import lab
from tests.engines.child import FrameworkMissing, outcome

Outcome = dict[str, Any]
Drive = Callable[..., Outcome]

BATCHES, BATCH_SIZE = 4, 8
REPOSITORY = Path(__file__).parents[2]

SOON_COMPILED = {
    "PYTHON_JULIACALL_OPTIMIZE": "0",
    "XLA_FLAGS": "--xla_backend_optimization_level=0",
}
"""For workers that compile many networks and run each a few steps: what is compiled is not optimized, and
computes the same. Julia still takes what packages have precompiled with more. As users have it, the engines
are held to the reference in test_identity.py.
"""

MOST_PROCESSES = 10
"""At the same time: an idle one holds some hundred MiB."""


@pytest.fixture(scope="session")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with four small batches of noise and lenet's initial weights."""
    folder = tmp_path_factory.mktemp("problem")
    random = np.random.default_rng(0)
    np.save(folder / "images.npy", random.random((BATCHES, BATCH_SIZE, 3, 32, 32), dtype=np.float32))
    np.save(folder / "labels.npy", random.integers(0, 10, (BATCHES, BATCH_SIZE)))
    np.savez(folder / "weights.npz", **initial_weights(LENET, 0))
    return folder


@pytest.fixture(scope="session")
def processes() -> Iterator[Callable[..., Executor]]:
    """`processes(engine, variants, **environment)`: one for all tests that want the same.

    Of all files: `SHARE_ENGINES` (`tests/conftest.py`) are those that one process of pytest's therefore runs.
    """
    started: dict[tuple[str, frozenset[tuple[str, str]]], Executor] = {}  # what was used last is last

    def process(engine: str, variants: tuple[str, ...] = (), **environment: str) -> Executor:
        given = worker_environment(ENGINES[engine], "cpu", 2, variants) | environment
        wanted = engine, frozenset(given.items())
        started[wanted] = started.pop(wanted, None) or start(given)
        if len(started) > MOST_PROCESSES:
            started.pop(next(iter(started))).shutdown()
        return started[wanted]

    yield process
    for executor in started.values():
        executor.shutdown()


def start(environment: dict[str, str]) -> Executor:
    """A process in this environment, of which more is asked one after the other."""
    executor = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), die_with_parent)
    with patch.dict(os.environ, environment | {"POLYBENCH_PARENT": str(os.getpid())}):
        executor.submit(os.getpid).result()
    return executor


def obtain(answer: Future[Any]) -> Any:
    """What the engine's process answers; skips the test where the framework is missing."""
    try:
        return answer.result()
    except FrameworkMissing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def run_check(problem: Path, processes: Callable[..., Executor]) -> lab.RunCheck:
    """`run_check(cell, check, **environment)`: run that function of a Lab in the process of such a cell.

    XLA does not optimize there what JAX gives it, unless the environment says how it is to compile.
    """

    def run(cell: str, check: lab.Check, **environment: str) -> None:
        engine, *variants = cell.split("+")
        soon = {"XLA_FLAGS": SOON_COMPILED["XLA_FLAGS"]} if "jax" in cell else {}
        process = processes(engine, tuple(variants), **(soon | environment))
        obtain(process.submit(lab.run, check.__module__, check.__name__, engine, problem))

    return run


@pytest.fixture(scope="module")
def drive(problem: Path, processes: Callable[..., Executor]) -> Drive:
    """`drive(engine with variants, dtype, precision)`: the engine's `outcome`."""

    @functools.cache
    def drive(name: str, dtype: str, precision: str = "fp32") -> Outcome:
        engine, _, variants = name.partition("+")
        process = processes(engine, tuple(variants.split("+")))
        return obtain(process.submit(outcome, engine, variants, dtype, precision, problem))

    return drive
