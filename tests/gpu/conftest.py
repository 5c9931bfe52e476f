from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path

import pytest

from tests.engines.conftest import problem, processes, result_or_skip
from tests.gpu import engine_fixtures
from tests.gpu.machine import gpu_names

__all__ = ["problem", "processes"]  # fixtures of the engines' tests


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu-report", type=Path, help="a line of JSON for each test as soon as it has ended")


def pytest_configure(config: pytest.Config) -> None:
    if (file := config.getoption("--gpu-report", None)) is not None:
        config.pluginmanager.register(Report(file), "gpu-report")


class Report:
    """Writes each test's findings at once, because the time limit may end the run."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and report.outcome == "passed":
            return
        found = "; ".join(str(value) for _, value in report.user_properties)
        crash = getattr(report.longrepr, "reprcrash", None)
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else crash.message if crash else ""
        line = {"test": report.nodeid.rpartition("::")[2], "outcome": report.outcome, "detail": found or why}
        with self._file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(line) + "\n")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not gpu_names():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here"))


@pytest.fixture
def find(
    problem: Path, processes: Callable[..., Executor], record_property: Callable[[str, object], None]
) -> engine_fixtures.Find:
    """Provide `find(engine, check)`: run that method of GpuEngineFixture in the engine's process, and record its
    text."""

    def find(engine: str, check: engine_fixtures.Finding) -> None:
        process = processes(engine, (), **engine_fixtures.ENVIRONMENT)
        answer = process.submit(engine_fixtures.run, check.__module__, check.__name__, engine, problem)
        record_property("found", result_or_skip(answer))

    return find
