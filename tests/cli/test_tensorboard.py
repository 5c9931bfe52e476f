"""`--tensorboard` in `compare` and `show`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.data import synthetic
from tests.cli.test_cli import FAST, Run, run

__all__ = ["run"]

pytest.importorskip("tensorboard")


def test_compare_and_show_write_the_same_event_files(run: Run) -> None:
    result = run("compare", "--engines", "fake,fake+slow", *FAST, "--no-metrics", "--tensorboard", "a b/runs")
    assert result.returncode == 0
    assert "2 runs for: tensorboard --logdir 'a b/runs'" in result.stderr
    runs = sorted(path.name for path in Path("a b/runs").glob("*/*"))
    assert runs == ["fake+slow_cpu", "fake_cpu"]
    again = run("show", "last", "--tensorboard", "again", "--quiet")
    assert (again.returncode, again.stderr) == (0, "")
    first, second = (
        {path.relative_to(folder): path.read_bytes() for path in Path(folder).rglob("events.*")}
        for folder in ("a b/runs", "again")
    )
    assert first == second
    assert len(first) == 2


def test_an_unwritable_folder_is_bad_input(run: Run) -> None:
    Path("file").touch()
    for command in (["compare", "--engines", "fake", *FAST], ["show", "last"]):
        result = run(*command, "--tensorboard", "file/runs")
        assert result.returncode == 2
        assert "cannot write to --tensorboard file/runs" in result.stderr


def test_a_sweep_rejects_tensorboard(run: Run) -> None:
    Path("sweep.toml").write_text('engines = ["fake"]\n[sweep]\nbatch_size = [1, 2]\n')
    result = run("run", "sweep.toml", "--tensorboard", "runs")
    assert result.returncode == 2
    assert "--tensorboard: the file is a sweep" in result.stderr


def test_an_interrupted_tracker_does_not_suppress_the_table(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def write(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("polybench.render.tensorboard.write", write)
    monkeypatch.setitem(synthetic.IMAGES, "train", 600)
    output = tmp_path / "table.txt"
    options = ["--engines", "fake", *FAST, "--no-metrics", "--no-save", "--tensorboard", str(tmp_path / "runs")]
    result = CliRunner().invoke(app, ["compare", *options, "--output", str(output)])
    assert result.exit_code == 0
    assert "interrupted before everything was written to --tensorboard" in result.output
    assert "fake/cpu" in output.read_text()
