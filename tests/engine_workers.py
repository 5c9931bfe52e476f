"""Workers of real engines, which all tests share: frameworks take seconds to start, and Julia compiles for minutes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from polybench.engines import ENGINES
from polybench.errors import EngineUnavailable
from polybench.protocol import calls
from polybench.protocol.environment import worker_environment
from polybench.protocol.process import WorkerProcess

REPOSITORY = Path(__file__).parents[1]

FAST_COMPILATION = {"PYTHON_JULIACALL_OPTIMIZE": "0", "XLA_FLAGS": "--xla_backend_optimization_level=0"}
"""Environment without compiler optimizations, for workers that compile many networks and run few steps.

Results are the same. Julia still uses precompiled packages. test_parity.py checks the engines with the
optimizations that users have.
"""

TIMEOUT = 240.0
"""Maximum wait for a worker's answer, in seconds; Julia compiles for minutes on a busy machine."""


Workers = Callable[..., WorkerProcess]


class _Shared:
    """The workers of this process of the tests, by engine, options and environment."""

    def __init__(self) -> None:
        self.started: dict[frozenset[tuple[str, Any]], WorkerProcess] = {}
        self._stack = contextlib.ExitStack()

    def start(self, environment: dict[str, str], log: Path) -> WorkerProcess:
        return self._stack.enter_context(WorkerProcess(environment | {"PYTHONPATH": str(REPOSITORY)}, log))

    def end(self) -> None:
        self._stack.close()
        self.started.clear()


_shared = _Shared()
end = _shared.end
"""End all shared workers: other tests watch the children of their process."""


@pytest.fixture(scope="session")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    """`workers(configuration, **options)`: a worker with its framework loaded; skips the test if it is missing.

    All tests of configurations with the same engine, options and environment share a process, and what it has compiled.
    Options are those of `worker_environment`.
    """
    folder = tmp_path_factory.mktemp("workers")

    def worker(configuration: str, **options: Any) -> WorkerProcess:
        engine, *variants = configuration.split("+")
        environment = worker_environment(ENGINES[engine], "cpu", 2, tuple(variants), **options) | FAST_COMPILATION
        key = frozenset({**environment, **options, "engine": engine}.items())
        if key not in _shared.started:
            _shared.started[key] = _shared.start(environment, folder / f"{configuration}.log")
        try:
            _shared.started[key].request(calls.load(ENGINES[engine].factory), TIMEOUT)
        except EngineUnavailable as missing:
            pytest.skip(missing.reason)
        return _shared.started[key]

    yield worker
    end()
