"""Ctrl-C in each command that measures: its last line is how to continue."""

from __future__ import annotations

import os
import signal
import sys
import warnings
from pathlib import Path

import pytest

from polybench import cli
from polybench.cli.live import LineProgress
from polybench.machine import interrupts
from polybench.runner.checkpoint import find_resumable
from polybench.storage.store import Store

ENDLESS = "--rounds-per-process 100000 --steps-per-round 5 --budget 1h --no-parity --no-metrics"
RESUME = "interrupted; resume with: polybench resume "
AGAIN = "interrupted; run the command again"


@pytest.mark.parametrize(
    ("command", "stage", "last_line"),
    [
        (f"compare {ENDLESS}", "round 2", RESUME),
        (f"compare {ENDLESS} --no-save", "round 2", AGAIN),
        (f"compare {ENDLESS} --on local --wait-idle 0", "round 2", RESUME),
        (f"sweep --batch-size 8,16 {ENDLESS}", "round 2", RESUME),
        (f"overhead --batch-size 8,16 {ENDLESS} --no-save", "round 2", AGAIN),
        ("layers --no-parity", "round 1", f"{RESUME}layers-"),
        ("peak --budget 1h", "round 1", f"{RESUME}peak-"),
    ],
)
def test_the_last_line_after_ctrl_c_is_how_to_continue(
    command: str,
    stage: str,
    last_line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    interrupted: list[str] = []
    on_stage = LineProgress.on_stage

    def interrupt(progress: LineProgress, text: str) -> None:
        on_stage(progress, text)
        if stage in text and not interrupted:
            interrupted.append(text)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(LineProgress, "on_stage", interrupt)
    monkeypatch.setenv("POLYBENCH_RESULTS", str(tmp_path))
    data = [] if command.startswith("peak") else ["--data", "synthetic"]
    monkeypatch.setattr(sys, "argv", ["polybench", *command.split(), "--engines", "fake", *data])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which the process that started the tests may ignore
    monkeypatch.setattr(interrupts, "ignore", lambda: None)  # this process goes on
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    last = capsys.readouterr().err.splitlines()[-1]
    assert interrupted
    assert last.startswith(last_line)
    if last_line == RESUME:
        assert find_resumable(last.removeprefix(RESUME), Store(tmp_path)).id == last.removeprefix(RESUME)
