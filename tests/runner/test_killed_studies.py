"""Real studies that are killed at random moments are resumed to complete ones."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
from pathlib import Path

import pytest

from polybench.log import BlockTimed, StudyEnded, read_log
from polybench.storage.store import Store
from tests.commands import FAST

COMMAND = ["compare", "--engines", "fake,fake+slow", "--devices", "cpu", *FAST, "--no-parity"]
COMMAND += ["--processes", "3", "--rounds-per-process", "2", "--epochs", "2"]
LONGEST = 3.0
"""Seconds within which a study is killed: about as long as it takes."""


def command(*arguments: str, results: Path) -> list[str]:
    """Return the command line of the program."""
    return [sys.executable, "-m", "polybench", *arguments, "--quiet", "--results", str(results)]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.wide) for seed in range(2, 40))])
def test_a_study_that_is_killed_at_any_moment_is_resumed(seed: int, tmp_path: Path) -> None:
    moment = random.Random(seed).uniform(0.2, LONGEST)
    with (
        subprocess.Popen(
            [sys.executable, "-m", "polybench", *COMMAND, "--quiet", "--results", str(tmp_path)]
        ) as process,
        contextlib.suppress(subprocess.TimeoutExpired),
    ):
        try:
            process.wait(moment)
        finally:
            process.kill()
    logs = list(tmp_path.glob("*.jsonl"))
    if process.returncode != 0 and logs and logs[0].read_bytes().count(b"\n"):
        before = read_log(logs[0])
        if not isinstance(before[-1], StudyEnded):  # else it was killed while it printed
            subprocess.run(command("resume", "last", results=tmp_path), check=True)
        assert read_log(logs[0])[: len(before)] == before
    elif process.returncode != 0:  # it was killed before it had written anything
        subprocess.run(command(*COMMAND, results=tmp_path), check=True)
    document = Store(tmp_path).load("last")
    assert document.finished
    for result in document.results:
        assert result.status == "ok"
        assert [len(rounds) for rounds in result.nested_step_times] == [2, 2, 2]
        assert [len(training.epochs) for training in result.trainings] == [2, 2, 2]
    (log,) = (path for path in tmp_path.glob("*.jsonl") if path.stem == document.id)
    timed = [(one.configuration, one.process, one.round) for one in read_log(log) if isinstance(one, BlockTimed)]
    assert len({*timed}) == 2 * 3 * 2
