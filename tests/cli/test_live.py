"""Progress on standard error."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
from rich.console import Console
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from polybench.cli.live import LiveTable, progress_on_stderr
from polybench.runner.progress import ConfigurationProgress


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
        ["torch/cpu", "identical", "2", "16.5", "ms"],
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


def test_the_bar_shows_the_completed_share(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("polybench.cli.live.time.monotonic", lambda: now)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, no_color=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        table = LiveTable(live)
        now = 30.0
        table.on_time_left(10.0)
        (grid,) = table._bar()
        assert isinstance(grid, Table)
        bar = next(iter(grid.columns[0].cells))
        assert isinstance(bar, ProgressBar)
        assert bar.percentage_completed == pytest.approx(75)
        now = 41.0
        assert table._bar() == []  # later than expected: the remaining time is unknown


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
