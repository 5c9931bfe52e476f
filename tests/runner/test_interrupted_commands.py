"""Ctrl-C in each command that measures: its last line is how to continue."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from _faults import restore_signals

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
        (f"compare {ENDLESS} --on local", "round 2", RESUME),
        (f"sweep --batch-size 8,16 {ENDLESS}", "round 2", RESUME),
        (f"overhead --batch-size 8,16 {ENDLESS} --no-save", "round 2", AGAIN),
        ("layers --no-parity", "round 1", AGAIN),
        ("peak --budget 1h", "round 1", AGAIN),
    ],
)
def test_the_last_line_after_ctrl_c_is_how_to_continue(
    command: str, stage: str, last_line: str, tmp_path: Path
) -> None:
    data = [] if command.startswith("peak") else ["--data", "synthetic"]
    with subprocess.Popen(
        [sys.executable, "-m", "polybench", *command.split(), "--engines", "fake", *data],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"POLYBENCH_RESULTS": str(tmp_path)},
        preexec_fn=restore_signals,  # noqa: PLW1509 - no threads here
    ) as process:
        assert process.stderr is not None
        try:
            assert any(stage in line for line in process.stderr)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 130, errors
    last = errors.splitlines()[-1]
    assert last.startswith(last_line)
    if last_line == RESUME:
        assert find_resumable(last.removeprefix(RESUME), Store(tmp_path)).id == last.removeprefix(RESUME)
