"""The tests of the Julia package itself, in Julia."""

from __future__ import annotations

import os
import statistics
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.core.document.study import from_json
from polybench.core.errors import Unavailable
from polybench.core.spec import Study
from polybench.core.statistics import mean_step
from polybench.data.batches import epoch_order, order_sha256
from polybench.engines.flux.julia.finding import Julia, check, find
from polybench.engines.flux.julia.package import package_folder
from polybench.models.initial_weights import initial_weights, weights_sha256
from polybench.models.lenet import LENET


def complete() -> Julia:
    """The Julia that is there; without one the test is skipped."""
    try:
        check(julia := find())
    except Unavailable as missing:
        pytest.skip(missing.reason)
    return julia


@pytest.fixture(scope="module")
def done() -> subprocess.CompletedProcess[str]:
    """The tests in Julia, run."""
    julia = complete()
    folder = package_folder()
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "--threads=2"]
    command.append(str(folder / "test" / "runtests.jl"))
    environment = os.environ | {"JULIA_LOAD_PATH": f"@:{folder}:@stdlib"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580, check=False)


@pytest.mark.slow
@pytest.mark.timeout(600)  # all of it is compiled anew
def test_the_julia_package(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_aqua_has_nothing_to_say(done: subprocess.CompletedProcess[str]) -> None:
    if "Aqua is not in this environment" in done.stdout:
        pytest.skip("Aqua is not in Julia's environment; Pkg.test() in julia/ brings it")
    assert "Aqua has tested the package" in done.stdout, done.stdout + done.stderr


WRITES = """
using PolyBench
trial = bench(:lenet; batch = 8, rounds = 2, steps = 3)
write_study(ARGS[1], trial)
"""


@pytest.mark.slow
def test_python_reads_the_study_that_julia_writes(tmp_path: Path) -> None:
    julia = complete()
    command = [
        julia.executable,
        f"--project={julia.project}",
        "--startup-file=no",
        "-e",
        WRITES,
        str(tmp_path),
    ]
    environment = os.environ | {"JULIA_LOAD_PATH": f"@:{package_folder()}:@stdlib"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = tmp_path.iterdir()
    study = from_json(file.read_bytes())
    assert study.id == file.stem
    settings = study.settings
    assert settings.weights_sha256 == weights_sha256(initial_weights(LENET, 0))
    assert settings.batches_sha256 == order_sha256(epoch_order(50_000, 8, 0, 0))
    assert (settings.model, settings.parameters, settings.rounds, settings.steps_per_round) == (
        "lenet",
        39_558,
        2,
        3,
    )
    assert settings.optimizer == LENET.optimizer
    (result,) = study.results
    assert result.step_seconds is not None
    assert len(result.steps[0]) == 2
    assert result.step_seconds.median == pytest.approx(median_of_rounds(result.steps[0]))
    assert result.block_means is not None
    assert result.block_means.seconds_per_step == pytest.approx(mean_step(result.steps)[0])
    assert result.block_means.speedup == 1.0
    # The study can be repeated, and is shown.
    again = msgspec.convert(tomllib.loads(study.study), Study)
    assert (again.model, again.batch_size, again.processes) == ("lenet", 8, 1)
    shown = CliRunner().invoke(app, ["show", "last", "--results", str(tmp_path)])
    assert shown.exit_code == 0, shown.output
    assert "flux/cpu" in shown.stdout


def median_of_rounds(rounds: list[list[float]]) -> float:
    return statistics.geometric_mean(statistics.median(one) for one in rounds)
