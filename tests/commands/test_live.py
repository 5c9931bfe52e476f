"""Progress on standard error."""

from __future__ import annotations

import io
import time

import pytest
from rich.console import Console
from rich.live import Live

from polybench.commands.live import LiveLine, progress_on_stderr


def test_plain_lines_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_on_stderr(quiet=False, verbose=False) as progress:
        progress.stage("starting torch/cpu [1]")
        progress.remaining(12.4)
        progress.warn("noise")
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == ["starting torch/cpu [1]", "about 12 s left", "warning: noise"]


def test_quiet_leaves_warnings(capsys: pytest.CaptureFixture[str]) -> None:
    with progress_on_stderr(quiet=True, verbose=False) as progress:
        progress.stage("starting")
        progress.remaining(5.0)
        progress.warn("noise")
    assert capsys.readouterr().err == "warning: noise\n"


def test_a_live_line_says_what_runs_and_how_long() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100, no_color=True)
    with Live(console=console, auto_refresh=False, transient=True) as live:
        line = LiveLine(live)
        line.stage("round 1 of 5")
        line.remaining(60.0)
        line.warn("noise")
    assert "round 1 of 5" in screen.getvalue()
    assert "s left" in screen.getvalue()
    assert "warning: noise" in screen.getvalue()


def test_a_live_line_draws_only_when_told() -> None:
    screen = io.StringIO()
    with Live(console=Console(file=screen, force_terminal=True), auto_refresh=False) as live:
        LiveLine(live).stage("waiting")
        before = screen.tell()
        time.sleep(0.6)  # a refresh thread would have drawn twice
        assert screen.tell() == before
