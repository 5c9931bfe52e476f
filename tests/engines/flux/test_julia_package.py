"""The tests of the Julia package itself, in Julia."""

from __future__ import annotations

import os
import statistics
import subprocess
import tomllib
from pathlib import Path
from typing import NamedTuple

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


class Done(NamedTuple):
    """The tests in Julia, run, and the folder in which they left the study that they have measured."""

    run: subprocess.CompletedProcess[str]
    studies: Path


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Done:
    """What is compiled is not optimized: it computes and counts the same, and nothing asserts a time."""
    julia, folder = complete(), package_folder()
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "--threads=2", "-O0"]
    command.append(str(folder / "test" / "runtests.jl"))
    studies = tmp_path_factory.mktemp("studies")
    own = {"JULIA_LOAD_PATH": f"@:{folder}:@stdlib", "POLYBENCH_KEEP_STUDY": str(studies)}
    run = subprocess.run(
        command, env=os.environ | own, capture_output=True, text=True, timeout=580, check=False
    )
    return Done(run, studies)


@pytest.mark.slow
@pytest.mark.timeout(600)  # all of it is compiled anew
def test_the_julia_package(done: Done) -> None:
    assert done.run.returncode == 0, done.run.stdout + done.run.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_aqua_has_nothing_to_say(done: Done) -> None:
    if "Aqua is not in this environment" in done.run.stdout:
        pytest.skip("Aqua is not in Julia's environment; Pkg.test() in julia/ brings it")
    assert "Aqua has tested the package" in done.run.stdout, done.run.stdout + done.run.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_python_reads_the_study_that_julia_writes(done: Done) -> None:
    (file,) = done.studies.iterdir()
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
    shown = CliRunner().invoke(app, ["show", "last", "--results", str(done.studies)])
    assert shown.exit_code == 0, shown.output
    assert "flux/cpu" in shown.stdout


def median_of_rounds(rounds: list[list[float]]) -> float:
    return statistics.geometric_mean(statistics.median(one) for one in rounds)
