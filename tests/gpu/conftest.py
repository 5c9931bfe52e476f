"""Time limits and the summary of the tests on a GPU."""

from __future__ import annotations

import importlib.util
import platform
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from pathlib import Path

import pytest

from polybench.engines import ENGINES
from polybench.protocol.environment import worker_environment
from tests.engine_workers import start_process
from tests.engines.conftest import problem
from tests.engines.engine_fixtures import FrameworkMissing
from tests.gpu import engine_fixtures
from tests.gpu.__main__ import gpu_names

__all__ = ["problem"]  # a fixture of the engines' tests

MODULES = {"torch": "torch", "jax": "jax", "tf": "tensorflow", "flux": "juliacall"}
ENGINE_SECONDS = 100.0
"""Seconds for all tests in an engine's process."""
LEAST_SECONDS = 15.0
"""Minimum seconds for another test."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu-folder", type=Path, help="folder for summary.md, documents and logs")
    parser.addoption("--gpu-seconds", type=float, default=float("inf"), help="for all tests")
    parser.addoption("--rehearse", action="store_true", help="run the studies with the engine `fake` on the CPU")


def pytest_configure(config: pytest.Config) -> None:
    if (folder := config.getoption("--gpu-folder", None)) is not None:
        config.pluginmanager.register(Summary(folder / "summary.md"), "gpu-summary")


class Summary:
    """Writes the summary again after each test, because the time limit may end the run."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._rows: list[tuple[str, str, str]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.passed:
            return
        verdict = "could not be tried" if report.skipped else report.outcome
        details = [str(value) for _, value in report.user_properties]
        crash = getattr(report.longrepr, "reprcrash", None)
        if isinstance(report.longrepr, tuple):
            details.append(report.longrepr[2].removeprefix("Skipped: "))
        elif crash is not None:
            details.append(crash.message.partition("\nassert")[0])
        title = report.nodeid.rpartition("::test_")[2].replace("_", " ")
        self._rows.append((title, verdict, "<br>".join(details)))
        self._file.write_text(self._text(), "utf-8")

    def _text(self) -> str:
        verdicts = [verdict for _, verdict, _ in self._rows]
        counts = [f"{verdicts.count(one)} {one}" for one in ("passed", "failed", "could not be tried")]
        lines = ["# GPU test results", "", f"{', '.join(gpu_names()) or 'No GPU: a rehearsal'}. {', '.join(counts)}."]
        lines += ["", f"- Python {platform.python_version()}, {platform.system()} {platform.release()}"]
        lines += [f"- Engines: {', '.join(installed_engines())}", "", "| check | verdict | detail |", "|---|---|---|"]
        for row in self._rows:
            lines.append(f"| {' | '.join(' '.join(text.split()).replace('|', '/') for text in row)} |")
        return "\n".join(lines) + "\n"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu_names():
        rehearsed = config.getoption("--rehearse", False)
        for item in marked:
            if not rehearsed or item.path.name != "test_studies.py":
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here"))


def installed_engines() -> tuple[str, ...]:
    """Return the engines whose framework is installed."""
    return tuple(engine for engine, module in MODULES.items() if importlib.util.find_spec(module) is not None)


@pytest.fixture(scope="session")
def deadline(request: pytest.FixtureRequest) -> float:
    """The end of the time for all tests, by `time.monotonic`."""
    return time.monotonic() + float(request.config.getoption("--gpu-seconds", float("inf")))


@pytest.fixture(autouse=True)
def enough_time(request: pytest.FixtureRequest) -> None:
    if request.node.get_closest_marker("gpu"):
        left = request.getfixturevalue("deadline") - time.monotonic()
        if left < LEAST_SECONDS:
            pytest.skip("no time was left")


@pytest.fixture(scope="module")
def engine_process(deadline: float) -> Iterator[Callable[[str], tuple[Executor, float]]]:
    """Provide `engine_process(engine)`: the process of this file's engine, and the end of its time.

    The process is killed after the last test, because it would keep GPU memory.
    """
    started: dict[str, tuple[Executor, float]] = {}

    def process(engine: str) -> tuple[Executor, float]:
        if engine not in started:
            variables = worker_environment(ENGINES[engine], "cpu", 2, ()) | engine_fixtures.ENVIRONMENT
            started[engine] = start_process(variables), min(deadline, time.monotonic() + ENGINE_SECONDS)
        return started[engine]

    yield process
    for executor, _ in started.values():
        for child in list(executor._processes.values()):  # type: ignore[attr-defined]
            child.kill()
        executor.shutdown()


@pytest.fixture
def find(
    problem: Path,
    engine_process: Callable[[str], tuple[Executor, float]],
    record_property: Callable[[str, object], None],
) -> engine_fixtures.Find:
    """Provide `find(engine, check)`: run that method of GpuEngineFixture in the engine's process, and record its
    text."""

    def find(engine: str, check: engine_fixtures.Finding) -> None:
        process, end = engine_process(engine)
        answer = process.submit(engine_fixtures.run, check.__module__, check.__name__, engine, problem)
        try:
            record_property("found", answer.result(max(0.0, end - time.monotonic())))
        except FrameworkMissing as missing:
            pytest.skip(str(missing))
        except TimeoutError:
            pytest.skip(f"the tests of {engine} were stopped after {ENGINE_SECONDS:.0f} s")

    return find
