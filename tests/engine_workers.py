"""Processes of real engines, which all tests share: frameworks start for seconds, and Julia compiles for minutes."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from importlib.metadata import version
from importlib.util import find_spec
from unittest.mock import patch

import pytest

from polybench.engines import ENGINES
from polybench.errors import EngineUnavailable
from polybench.protocol.environment import worker_environment
from polybench.worker.__main__ import die_with_parent
from tests.worker_sessions import InExecutor

XLA_OPTIONS: dict[str, int | bool] = {
    "xla_backend_optimization_level": 0,
    "xla_cpu_parallel_codegen_split_count": 1,
    "xla_cpu_use_fusion_emitters": False,
}
"""Options of XLA without which it compiles for three times as long; the oldest version does not have the last one."""
if find_spec("jaxlib") is not None and version("jaxlib").startswith("0.5."):
    del XLA_OPTIONS["xla_cpu_use_fusion_emitters"]

FAST_COMPILATION = {
    "PYTHON_JULIACALL_OPTIMIZE": "0",
    "XLA_FLAGS": " ".join(f"--{name}={str(value).lower()}" for name, value in XLA_OPTIONS.items()),
}
"""Environment without compiler optimizations, for workers that compile many networks and run few steps.

Results are the same. Julia still uses precompiled packages. test_parity.py checks the engines with the
optimizations that users have.
"""
_COMPILERS = {"flux": "PYTHON_JULIACALL_OPTIMIZE", "lux": "PYTHON_JULIACALL_OPTIMIZE", "jax": "XLA_FLAGS"}

TIMEOUT = 240.0
"""Maximum wait for a worker's answer, in seconds; Julia compiles for minutes on a busy machine."""

MAX_PROCESSES = 10
"""Maximum number of simultaneous processes; an idle one uses some hundred MiB."""

Processes = Callable[..., Executor]
Workers = Callable[[str], InExecutor]

_TENSORFLOW = {"TF_ENABLE_ONEDNN_OPTS": "1", "TF_CUDNN_USE_AUTOTUNE": "1"}
_SETTINGS = {"tf": _TENSORFLOW, "keras": _TENSORFLOW}
"""oneDNN is the default on newer CPUs only, and the allocations that TensorFlow reports depend on it."""
_SAME_PROCESS = {"keras": "tf"}
"""Engines with the same framework and the same environment."""

_started: dict[tuple[str, frozenset[tuple[str, str]]], Executor] = {}
"""By engine and environment; least recently used first."""


def fast_compilation(configuration: str) -> dict[str, str]:
    """Return the variables of FAST_COMPILATION that the configuration reads; without any, it shares its process."""
    return {name: FAST_COMPILATION[name] for one, name in _COMPILERS.items() if one in configuration.split("+")}


def start_process(environment: dict[str, str]) -> Executor:
    """Start a process with these environment variables; it runs its tasks sequentially."""
    executor = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), die_with_parent)
    with patch.dict(os.environ, environment | {"POLYBENCH_PARENT": str(os.getpid())}):
        executor.submit(os.getpid).result()
    return executor


def _set_tensorflow_threads() -> None:
    """Set the pools' sizes before a test computes: an engine, which a later test makes here, could not change them."""
    from polybench.engines.shared.tensorflow import set_threads

    set_threads(2)


def end() -> None:
    """End all shared processes: other tests watch the children of their process."""
    while _started:
        _started.popitem()[1].shutdown()


@pytest.fixture(scope="session")
def processes() -> Iterator[Processes]:
    """`processes(engine, variants, **environment)`: a process shared by all tests with the same arguments.

    One process of pytest-xdist runs all tests of Julia, and one all others that share these processes.
    """

    def process(engine: str, variants: tuple[str, ...] = (), **environment: str) -> Executor:
        variables = worker_environment(ENGINES[engine], "cpu", 2, variants) | _SETTINGS.get(engine, {}) | environment
        key = _SAME_PROCESS.get(engine, engine), frozenset(variables.items())
        if (started := _started.pop(key, None)) is None:
            started = start_process(variables)
            if key[0] == "tf" and find_spec("tensorflow") is not None:
                started.submit(_set_tensorflow_threads).result()
        _started[key] = started
        if len(_started) > MAX_PROCESSES:
            _started.pop(next(iter(_started))).shutdown()
        return _started[key]

    yield process
    end()


@pytest.fixture(scope="session")
def workers(processes: Processes) -> Workers:
    """`workers(configuration)`: a worker with its framework loaded; skips the test if it is missing.

    It is in the process of the same engine and environment, with what that has compiled.
    """

    def worker(configuration: str) -> InExecutor:
        engine, *variants = configuration.split("+")
        process = processes(engine, tuple(variants), **fast_compilation(configuration))
        try:
            return InExecutor(process, ENGINES[engine].factory, TIMEOUT)
        except EngineUnavailable as missing:
            pytest.skip(missing.reason)

    return worker
