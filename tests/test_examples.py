"""Every example runs, with tiny settings."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.core.errors import Unavailable
from polybench.core.spec import Study
from polybench.julia import package_folder
from polybench.julia.finding import check, find
from polybench.plan import resolve
from tests.test_plain import BATCH_SIZE, TIMED, folder, losses_of_engine

__all__ = ["folder"]

EXAMPLES = Path(__file__).parents[1] / "examples"


def test_compare_in_python() -> None:
    command = [sys.executable, str(EXAMPLES / "compare_in_python.py"), "synthetic", "fake", "fake+slow"]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert output.splitlines()[-1].startswith("fake+slow/cpu")
    assert "times the baseline" in output


@pytest.mark.slow
def test_flux_by_hand(folder: Path, tmp_path: Path) -> None:
    """The example in plain Julia prints the losses that the engine has."""
    try:
        check(julia := find())
    except Unavailable as lacking:
        pytest.skip(lacking.reason)
    start = tmp_path / "start.npz"
    options = ["--data", str(folder), "--batch-size", str(BATCH_SIZE), "--steps", str(2 + TIMED)]
    assert CliRunner().invoke(app, ["weights", *options, "--output", str(start)]).exit_code == 0
    command = [
        julia.executable,
        f"--project={julia.project}",
        "--startup-file=no",
        str(EXAMPLES / "flux_by_hand.jl"),
    ]
    environment = os.environ | {"JULIA_LOAD_PATH": f"@:{package_folder()}:@stdlib"}
    done = subprocess.run(
        [*command, str(start), str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    printed = [float(loss) for loss in re.findall(r"^step \d+: loss (\S+),", done.stdout, re.MULTILINE)]
    plan = resolve(Study(("flux",), ("cpu",), data=str(folder), batch_size=BATCH_SIZE, threads=1))
    assert printed == pytest.approx(losses_of_engine(plan, tmp_path), rel=1e-5)
    assert " allocations, " in done.stdout
