"""Progress on standard error."""

from __future__ import annotations

import contextlib
import io
import re
import threading
import time

import pytest
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from polybench.cli.live import LiveTable, progress_on_stderr
from polybench.runner.progress import ConfigurationProgress, PhaseProgress


def test_prints_plain_lines_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_on_stderr(quiet=False, verbose=False) as progress:
        progress.on_stage("starting torch/cpu [1]")
        progress.on_time_left(12.4)
        progress.on_warning("noise")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["starting torch/cpu [1]", "about 12 s left", "warning: noise"]


def test_quiet_prints_warnings_only(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_on_stderr(quiet=True, verbose=False) as progress:
        progress.on_stage("starting")
        progress.on_time_left(5.0)
        progress.on_warning("noise")
    assert capsys.readouterr().err == "warning: noise\n"


CELLS = [
    ConfigurationProgress("torch/cpu", "pass", "ok", 2, 0.0165),
    ConfigurationProgress("tf/cpu", "fail", "ok", 1, 0.012),
    ConfigurationProgress("flux/cpu", "skipped", "ok", 0, None),
    ConfigurationProgress("jax/cpu", "skipped", "unavailable", 0, None),
]


def screen_of(configurations: list[ConfigurationProgress], *, height: int = 24, color: bool = False) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, height=height, no_color=not color)
    with Live(console=console, auto_refresh=False) as live:
        table = LiveTable(live)
        table.on_stage("round 1 of 5")
        table.on_configurations(configurations)
    return screen.getvalue()


def test_the_table_shows_every_configuration() -> None:
    lines = [line.split() for line in on_screen(screen_of(CELLS)) if line]
    assert lines == [
        ["engine", "parity", "rounds", "step", "time"],
        ["torch/cpu", "same", "2", "16.5", "ms"],
        ["tf/cpu", "DIFFERS", "1", "12.0", "ms"],
        ["flux/cpu"],
        ["jax/cpu", "unavailable"],
        ["round", "1", "of", "5"],
    ]


def test_failures_are_coloured() -> None:
    coloured = screen_of(CELLS, color=True)
    assert re.search(r"\x1b\[1;31mDIFFERS", coloured)
    assert re.search(r"\x1b\[33munavailable", coloured)


def test_a_terminal_with_too_few_lines_shows_the_stage_only() -> None:
    many = [ConfigurationProgress(f"torch/cpu#{n}", "pass", "ok", 1, 0.01) for n in range(30)]
    assert [line for line in on_screen(screen_of(many, height=20)) if line] == ["round 1 of 5"]


class Terminal:
    """A live table with a clock that only the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("polybench.cli.live.time.monotonic", lambda: self.now)
        screen = Console(file=io.StringIO(), force_terminal=True, width=100, no_color=True)
        self.table = LiveTable(Live(console=screen, auto_refresh=False, transient=True))

    def bar(self) -> float | None:
        """Return the measured fraction in percent; None without a bar."""
        bar = self._line()[0]
        return bar.percentage_completed if isinstance(bar, ProgressBar) else None

    def times(self) -> str:
        """Return the text beside the bar."""
        return str(self._line()[-1])

    def _line(self) -> list[object]:
        grid = self.table._bar()[0]
        assert isinstance(grid, Table)
        return [next(iter(column.cells)) for column in grid.columns]

    def phase(self) -> str:
        """Return the line below the bar."""
        return str(self.table._bar()[-1])


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)


def test_the_bar_shows_the_measured_fraction_with_elapsed_and_remaining_time(terminal: Terminal) -> None:
    terminal.table.on_phase(PhaseProgress("measuring", done=0.25))
    terminal.now = 30.0
    assert (terminal.bar(), terminal.times()) == (pytest.approx(25), "0:30 elapsed")
    terminal.table.on_time_left(12.0)
    terminal.table.on_phase(PhaseProgress("measuring", done=0.75))
    assert (terminal.bar(), terminal.times()) == (pytest.approx(75), "0:30 elapsed, about 10 s left")
    terminal.now = 65.0  # later than expected: the remaining time is unknown
    assert (terminal.bar(), terminal.times()) == (pytest.approx(75), "1:05 elapsed")


def test_a_phase_shows_its_seconds_unless_it_is_timed(terminal: Terminal) -> None:
    terminal.table.on_phase(PhaseProgress("parity check"))
    terminal.now = 12.0
    assert terminal.phase() == "parity check: 12 s"
    assert terminal.bar() is None  # before the first process run
    terminal.table.on_phase(PhaseProgress("measuring: torch/cpu", is_timed=True, done=0.0))
    terminal.now = 14.0
    assert terminal.phase() == "measuring: torch/cpu"


def test_the_table_is_drawn_every_second_but_not_while_steps_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("polybench.cli.live._TICK_SECONDS", 0.001)
    screen = io.StringIO()
    with Live(console=Console(file=screen, force_terminal=True), auto_refresh=False) as live:
        table = LiveTable(live)
        drawn, draw = threading.Semaphore(0), table._draw
        monkeypatch.setattr(table, "_draw", lambda: (draw(), drawn.release()))
        with table.ticking():
            table.on_phase(PhaseProgress("parity check"))
            for _ in range(3):
                assert drawn.acquire(timeout=10)
            table.on_phase(PhaseProgress("measuring", is_timed=True))
            time.sleep(0.02)  # a tick that had begun ends
            while drawn.acquire(blocking=False):
                pass
            assert not drawn.acquire(timeout=0.1)


@pytest.mark.parametrize("fails", [False, True])
def test_a_warning_that_the_result_repeats_disappears_with_the_table(
    fails: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # makes rich behave as on a terminal
    with (
        contextlib.suppress(RuntimeError),
        progress_on_stderr(quiet=False, verbose=False, repeats_warnings=True) as progress,
    ):
        progress.on_stage("round 1 of 5")
        progress.on_warning("noise")
        progress.on_stage("round 2 of 5")
        if fails:
            raise RuntimeError
    written = capsys.readouterr().err
    assert "warning: noise" in written
    assert [line for line in on_screen(written) if line] == (["warning: noise"] if fails else [])


def test_only_warnings_that_the_result_lacks_follow_it(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_on_stderr(quiet=False, verbose=False, repeats_warnings=True) as progress:
        progress.on_warning("large: noise")
        progress.on_warning("large: the node was lost")
    progress.flush_warnings(["noise"])
    assert capsys.readouterr().err == "warning: large: the node was lost\n"


def on_screen(written: str) -> list[str]:
    """Return the lines on the screen after carriage returns, cursor movements and erased lines, without colours."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[\d*[A-Za-z]|\x1b\[[?\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", written):
        if part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif part.endswith("A") and part.startswith("\x1b"):
            row -= int(part[2:-1] or 1)
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part[0] not in "\x1b\r":
            lines[row] += part
    return lines
