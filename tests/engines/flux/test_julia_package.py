"""Runs the tests of the Julia package in Julia."""

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
from polybench.data.batches import epoch_order, order_sha256
from polybench.engines.flux.julia.discovery import Julia, check, find, package_folder
from polybench.errors import EngineUnavailable
from polybench.networks.initial_weights import initial_weights, weights_sha256
from polybench.networks.lenet import LENET
from polybench.schema.options import Study
from polybench.schema.study import from_json
from polybench.stats.statistics import mean_step


def complete_julia() -> Julia:
    """Return the configured Julia, or skip the test."""
    try:
        check(julia := find())
    except EngineUnavailable as missing:
        pytest.skip(missing.reason)
    return julia


class JuliaTests(NamedTuple):
    """A finished run of the tests in Julia, and the folder with the study that they saved."""

    run: subprocess.CompletedProcess[str]
    studies: Path


@pytest.fixture(scope="module")
def julia_tests(tmp_path_factory: pytest.TempPathFactory) -> JuliaTests:
    """Run Julia's tests with -O0, which compiles faster and computes the same; no test asserts a time."""
    julia, folder = complete_julia(), package_folder()
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "--threads=2", "-O0"]
    command.append(str(folder / "test" / "runtests.jl"))
    studies = tmp_path_factory.mktemp("studies")
    own = {"JULIA_LOAD_PATH": f"@:{folder}:@stdlib", "POLYBENCH_STUDY_FOLDER": str(studies)}
    run = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=580, check=False)
    return JuliaTests(run, studies)


@pytest.mark.cuda_level("flux", "type-checked")
@pytest.mark.slow
@pytest.mark.timeout(600)  # compiles everything again
def test_julia_package(julia_tests: JuliaTests) -> None:
    assert julia_tests.run.returncode == 0, julia_tests.run.stdout + julia_tests.run.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_aqua_finds_no_problem(julia_tests: JuliaTests) -> None:
    if "Aqua is not in this environment" in julia_tests.run.stdout:
        pytest.skip("Aqua is not in Julia's environment; Pkg.test() in julia/ brings it")
    assert "Aqua has tested the package" in julia_tests.run.stdout, julia_tests.run.stdout + julia_tests.run.stderr


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_python_reads_studies_from_julia(julia_tests: JuliaTests) -> None:
    (file,) = julia_tests.studies.iterdir()
    study = from_json(file.read_bytes())
    assert study.id == file.stem
    settings = study.settings
    assert settings.weights_sha256 == weights_sha256(initial_weights(LENET, 0))
    assert settings.batches_sha256 == order_sha256(epoch_order(50_000, 8, 0, 0))
    assert (settings.model, settings.parameters, settings.rounds_per_process, settings.steps_per_round) == (
        "lenet",
        39_558,
        2,
        3,
    )
    assert settings.optimizer == LENET.optimizer
    (result,) = study.results
    assert result.step_time is not None
    assert len(result.nested_step_times[0]) == 2
    assert result.step_time.median == pytest.approx(median_of_rounds(result.nested_step_times[0]))
    assert result.mean_step_time is not None
    assert result.mean_step_time.seconds == pytest.approx(mean_step(result.nested_step_times)[0])
    assert result.vs_baseline is not None
    assert result.vs_baseline.mean_speedup == 1.0
    # The study can be repeated and shown.
    again = msgspec.convert(tomllib.loads(study.study), Study)
    assert (again.model, again.batch_size, again.processes) == ("lenet", 8, 1)
    shown = CliRunner().invoke(app, ["show", "last", "--results", str(julia_tests.studies)])
    assert shown.exit_code == 0, shown.output
    assert "flux/cpu" in shown.stdout


def median_of_rounds(rounds: list[list[float]]) -> float:
    return statistics.geometric_mean(statistics.median(steps) for steps in rounds)
