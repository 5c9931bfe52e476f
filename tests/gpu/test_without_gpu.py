"""Checks of the GPU tests on a machine without a GPU."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from polybench.cli import app
from polybench.schema.metadata import UNKNOWN_HOST
from polybench.schema.study import from_json
from tests.gpu import __main__
from tests.gpu.test_studies import REHEARSAL, Here, commands

ROOT = Path(__file__).parents[2]


def test_without_a_gpu_it_ends_with_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(__main__, "gpu_names", list)
    assert __main__.main([str(tmp_path / "made")]) == 4
    assert capsys.readouterr().err == "No NVIDIA GPU was found, so no CUDA code can be tested.\n"
    assert not (tmp_path / "made").exists()


def test_without_a_gpu_it_needs_only_python() -> None:
    """It must report this even if polybench's own packages are not installed."""
    code = "import sys, tests.gpu.__main__; sys.exit(bool({'msgspec', 'numpy', 'polybench'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-S", "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("here", [Here(("torch", "jax", "tf")), REHEARSAL])
def test_every_command_is_valid(here: Here) -> None:
    """Otherwise a misspelled option would fail on the GPU machine only."""
    verbs: Any = typer.main.get_command(app)
    for verb, *rest in commands(here).values():
        if verb in ("compare", "run"):
            shown = CliRunner().invoke(app, [verb, *rest, "--dry-run"])
            assert shown.exit_code == 0, (rest, shown.output)
        else:  # has no --dry-run
            verbs.commands[verb].make_context(verb, list(rest))


@pytest.mark.wide  # nine real studies
def test_a_rehearsal_writes_documents_and_a_summary(tmp_path: Path) -> None:
    assert __main__.main([str(tmp_path), "--rehearse", "-k", "not identical"]) == 0
    summary = (tmp_path / "summary.md").read_text()
    assert "faulty+crash/cpu (fp32) fails: the worker was killed" in summary
    assert "10 passed, 0 failed" in summary
    studies = {name for name, (verb, *_) in commands(REHEARSAL).items() if verb in ("compare", "run")}
    assert {path.stem for path in tmp_path.glob("*.json")} == studies | {"sweep"}
    assert {from_json(path.read_bytes()).host.hostname for path in tmp_path.glob("[!s]*.json")} == {UNKNOWN_HOST}
    assert len(list((tmp_path / "documents").glob("*.jsonl"))) == len(studies) + 1  # the sweep is one log
