"""A pytest plugin that writes the seconds of each test, and a table of the most expensive files and fixtures.

`build/durations.csv` has a row per test and per use of a fixture. `pytest --expensive` prints the 30 most expensive
files and fixtures, as does `python -m tests.durations [FILE]`. The time of a file includes that of its fixtures.
"""

from __future__ import annotations

import csv
import sys
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from tabulate import tabulate

FILE = Path(__file__).parents[1] / "build/durations.csv"

_SHOWN = 30
_COUNTED = 1e-3
"""Seconds from which a fixture counts."""

_FIXTURES = "fixtures"
"""Key of a report's properties: xdist carries them from the processes that run tests to the one that writes."""


_finished: list[tuple[str, float]] = []
"""Fixtures that this process has set up since its last report."""


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
    start = time.perf_counter()
    try:
        return (yield)
    finally:
        _finished.append((f"{fixturedef.baseid}::{fixturedef.argname}", time.perf_counter() - start))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.user_properties = [*report.user_properties, (_FIXTURES, [one for one in _finished if one[1] > _COUNTED])]
    _finished.clear()
    return report


class Durations:
    """Collects the seconds of tests and fixtures in the process that reports, and writes them at the end."""

    def __init__(self) -> None:
        self._tests: dict[str, float] = defaultdict(float)
        self._fixtures: list[tuple[str, float]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._tests[report.nodeid] += report.duration
        properties: dict[str, Any] = dict(report.user_properties)
        self._fixtures += properties.get(_FIXTURES, ())

    def pytest_sessionfinish(self) -> None:
        FILE.parent.mkdir(exist_ok=True)
        with FILE.open("w", newline="", encoding="utf-8") as file:
            rows = csv.writer(file)
            rows.writerow(("kind", "name", "seconds"))
            rows.writerows(("test", name, f"{seconds:.4f}") for name, seconds in self._tests.items())
            rows.writerows(("fixture", name, f"{seconds:.4f}") for name, seconds in self._fixtures)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
        if config.getoption("expensive"):
            terminalreporter.write_line(tables(FILE))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--expensive", action="store_true", help="print the most expensive files and fixtures")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Durations())


def tables(file: Path) -> str:
    """Return the most expensive files and fixtures of a CSV file as two tables."""
    seconds: dict[str, dict[str, list[float]]] = {"test": defaultdict(list), "fixture": defaultdict(list)}
    with file.open(newline="", encoding="utf-8") as opened:
        for row in csv.DictReader(opened):
            name = row["name"].partition("::")[0] if row["kind"] == "test" else row["name"]
            seconds[row["kind"]][name].append(float(row["seconds"]))
    return "\n\n".join(
        _table(*one) for one in (("file", "tests", seconds["test"]), ("fixture", "uses", seconds["fixture"]))
    )


def _table(name: str, counted: str, found: dict[str, list[float]]) -> str:
    rows = sorted(((sum(values), len(values), one) for one, values in found.items()), reverse=True)
    total = (sum(row[0] for row in rows), sum(row[1] for row in rows), "all")
    return tabulate([*rows[:_SHOWN], total], ("seconds", counted, name), floatfmt=".1f")


if __name__ == "__main__":
    print(tables(Path(sys.argv[1]) if sys.argv[1:] else FILE))
