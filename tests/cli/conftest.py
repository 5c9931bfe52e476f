from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from polybench import cli
from polybench.data import synthetic

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 600)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_data: None, capfd: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs the program from entry point to exit code in this process, on less data."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["polybench", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess(sys.argv, ended.value.code, *capfd.readouterr())

    return run
