"""Engines are driven in processes of their own: two frameworks in one process can crash."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polybench.engines import ENGINES
from polybench.launcher import worker_environment
from polybench.models.initial_weights import initial_weights
from polybench.models.lenet import LENET
from tests.engines.child import UNAVAILABLE

Outcome = dict[str, Any]
Drive = Callable[..., Outcome]
RunChild = Callable[..., str]
RunChecks = Callable[[str, dict[str, str]], dict[str, str]]

BATCHES, BATCH_SIZE = 4, 8
REPOSITORY = Path(__file__).parents[2]


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
def run_child() -> RunChild:
    """Run a module of the tests with an engine's environment; skips the test without the engine."""

    def run(engine: str, *arguments: object, variants: tuple[str, ...] = ()) -> str:
        environment = os.environ | worker_environment(ENGINES[engine], "cpu", 2, variants)
        command = [sys.executable, "-m", *map(str, arguments)]
        done = subprocess.run(
            command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        if done.returncode == UNAVAILABLE:
            pytest.skip(done.stderr.strip().splitlines()[-1])
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="session")
def run_checks(problem: Path, run_child: RunChild) -> RunChecks:
    """`run_checks(engine, checks)`: each check's traceback, "" if it passed; one process for all of them."""

    @functools.cache
    def run(engine: str, checks: str) -> dict[str, str]:
        return json.loads(run_child(engine, "tests.engines.check", engine, problem, checks).splitlines()[-1])

    return lambda engine, checks: run(engine, json.dumps(checks))


@pytest.fixture(scope="session")
def drive(problem: Path, run_child: RunChild) -> Drive:
    """`drive(engine with variants, dtype, precision)`: what child.py wrote, one process for each."""

    @functools.cache
    def drive(name: str, dtype: str, precision: str = "fp32") -> Outcome:
        engine, _, variants = name.partition("+")
        arguments = ("tests.engines.child", engine, variants, dtype, precision, problem)
        run_child(engine, *arguments, variants=tuple(variants.split("+")))
        with np.load(problem / "out.npz") as file:
            return dict(file)

    return drive
