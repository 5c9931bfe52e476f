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
from polybench.engines.flux.julia.discovery import loadable, package_folder
from polybench.networks.initial_weights import initial_weights, weights_sha256
from polybench.networks.lenet import LENET
from polybench.networks.optimizers import Optimizer
from polybench.schema.options import Study
from polybench.schema.study import StudyDocument
from polybench.stats.statistics import mean_step
from polybench.storage.store import Store
from tests.commands import printed, printed_json, refused
from tests.configured_julia import configured_julia


class JuliaTests(NamedTuple):
    """A finished run of the tests in Julia, and the folder with the study that they saved."""

    run: subprocess.CompletedProcess[str]
    studies: Path


def run_tests(file: str, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a file of Julia's tests with -O0, which compiles faster and computes the same; no test asserts a time."""
    julia, folder = configured_julia(), package_folder()
    command = [julia.executable, f"--project={julia.project}", "--startup-file=no", "--threads=2", "-O0", *options]
    command.append(str(folder / "test" / file))
    own = {"JULIA_LOAD_PATH": f"@:{folder}:@stdlib", **variables}
    return subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=2900, check=False)


@pytest.fixture(scope="module")
def julia_tests(tmp_path_factory: pytest.TempPathFactory) -> JuliaTests:
    studies = tmp_path_factory.mktemp("studies")
    run = run_tests("runtests.jl", POLYBENCH_STUDY_FOLDER=str(studies), POLYBENCH_QUICK_TESTS="1")
    return JuliaTests(run, studies)


@pytest.mark.cuda_level("flux", "type-checked")
@pytest.mark.timeout(1200)  # compiles everything again
def test_julia_package(julia_tests: JuliaTests) -> None:
    assert julia_tests.run.returncode == 0, julia_tests.run.stdout + julia_tests.run.stderr


@pytest.mark.timeout(1200)
def test_the_import_of_chains() -> None:
    run = run_tests("import.jl", "--compile=min")  # compiling for the type of each chain takes a second
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.wide  # with Aqua, JET, Lux and the examples of docstrings; JET infers types for minutes
@pytest.mark.timeout(3000)
def test_the_whole_julia_package() -> None:
    installed = loadable(configured_julia()).keys() & {"Aqua", "JET"}
    run = run_tests("runtests.jl")
    assert run.returncode == 0, run.stdout + run.stderr
    for package in installed:
        assert f"{package} has tested the package" in run.stdout


@pytest.mark.timeout(1200)
def test_python_reads_studies_from_julia(julia_tests: JuliaTests) -> None:
    study = read(julia_tests, "lenet")
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
    assert result.step_time.mean == pytest.approx(mean_step(result.nested_step_times)[0])
    assert result.vs_baseline is not None
    assert result.vs_baseline.typical_speedup == 1.0
    # The study can be repeated and shown.
    again = msgspec.convert(tomllib.loads(study.study), Study)
    assert (again.model, again.batch_size, again.processes) == ("lenet", 8, 1)
    shown = CliRunner().invoke(app, ["show", study.id, "--results", str(julia_tests.studies)])
    assert shown.exit_code == 0, shown.output
    assert "flux/cpu" in shown.stdout


@pytest.mark.timeout(1200)
def test_python_reads_studies_of_models_of_julia_users(
    julia_tests: JuliaTests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POLYBENCH_RESULTS", str(julia_tests.studies))
    study = read(julia_tests, "small")
    assert (study.settings.parameters, study.settings.batch_size, study.settings.rounds_per_process) == (117, 4, 2)
    assert study.settings.optimizer == Optimizer("sgd", 0.01)
    (result,) = study.results
    assert len(result.nested_step_times[0]) == 2
    assert result.epoch_seconds is None
    printed("report", study.id, "-o", tmp_path / "report.html")
    shown = printed("show", study.id)
    assert shown.startswith("small on own data, batch 4, fp32, 2 threads; ")
    (row,) = printed_json("diff", study.id, study.id)["rows"]
    assert (row["ratio"], row["verdict"]) == (1.0, "cannot tell")
    (other,) = printed_json("diff", study.id, read(julia_tests, "lenet").id)["rows"]
    assert (other["verdict"], other["reason"]) == ("not comparable", "different model: small in A, lenet in B")
    assert "its model 'small' is known only to the Julia session that measured it" in refused("run", study.id)


def read(julia_tests: JuliaTests, model: str) -> StudyDocument:
    """Return the study of this model that the tests in Julia saved; its file has the name of its ID."""
    store = Store(julia_tests.studies)
    studies = [store.load(file.stem) for file in julia_tests.studies.glob("*.jsonl")]
    return next(study for study in studies if study.settings.model == model)


def median_of_rounds(rounds: list[list[float]]) -> float:
    return statistics.geometric_mean(statistics.median(steps) for steps in rounds)
