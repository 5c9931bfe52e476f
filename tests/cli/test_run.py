"""`polybench run` with study files and saved studies."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from typer.testing import CliRunner, Result

from polybench.cli import app
from polybench.errors import BadInput
from polybench.planning.study_file import REFERENCES
from polybench.schema.study import from_json
from tests.cli.test_cli import run as program
from tests.scripts.test_plain import folder

__all__ = ["folder", "program"]

STUDY = """
title = "Two fakes"
published = "paper"
engines = ["fake", "fake+slow"]
devices = ["cpu"]
data = "cifar"
batch_size = 16
processes = 2
rounds_per_process = 1
steps_per_round = 5
[prices]
cpu = 3.6
"""
REFERENCE = """
[paper]
source = "a journal"
numbers = [{label = "Flux", hardware = "i7", quantity = "time an epoch", value = 82.470, unit = "s"}]
"""


@pytest.fixture
def study(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / REFERENCES).write_text(REFERENCE)
    file = tmp_path / "two.toml"
    file.write_text(STUDY)
    return file


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["run", *map(str, arguments)])


def test_a_study_file_is_measured_printed_and_repeated(
    program: Callable[..., CompletedProcess[str]], study: Path
) -> None:
    first = program("run", study.name, "--published")
    assert first.returncode == 0
    assert first.stdout.startswith("Two fakes\nlenet ")
    assert "fake+slow/cpu" in first.stdout
    table, block = first.stdout.split("published (not measured here)")
    assert "82.47 s" in block
    assert "82.47" not in table
    assert program("show", "last", "--published").stdout == first.stdout
    assert program("show", "last").stdout == table.rstrip() + "\n"

    saved = from_json(program("show", "last", "--format", "json").stdout.encode())
    again = run("last", "--format", "json", "--no-save", "--quiet")
    repeated = from_json(again.stdout.encode())
    assert repeated.study == saved.study
    assert repeated.settings == saved.settings
    assert (repeated.title, repeated.published) == (saved.title, saved.published)
    assert [result.configuration for result in repeated.results] == [result.configuration for result in saved.results]
    assert repeated.results[0].cost is not None


def test_quick_and_data_override_a_study_file(study: Path) -> None:
    done = run(study, "--quick", "--no-save", "--format", "json", "--quiet")
    assert json.loads(done.stdout)["settings"]["processes"] == 1
    lost = run(study, "--data", "nowhere")
    assert isinstance(lost.exception, BadInput)
    assert "nowhere" in str(lost.exception)


def test_options_override_the_study_file(study: Path) -> None:
    done = run(
        *(study, "--engines", "fake", "--seed", "7", "--price", "cpu=1.8", "--steps-per-round", "4", "--no-metrics"),
        *("--no-save", "--format", "json", "--quiet"),
    )
    document = from_json(done.stdout.encode())
    assert [result.configuration for result in document.results] == ["fake/cpu"]
    settings = document.settings
    assert (settings.seed, settings.prices, settings.steps_per_round) == (7, {"cpu": 1.8}, 4)
    assert (settings.batch_size, settings.processes, settings.rounds_per_process) == (16, 2, 1)  # the file's
    assert 'engines = ["fake"]' in document.study.replace("\n    ", "").replace(",\n]", "]")
    assert "metrics = false" in document.study

    wrong = run(study, "--processes", "0")
    assert isinstance(wrong.exception, BadInput)
    assert "--processes" in str(wrong.exception)


def test_quick_applies_after_the_options(study: Path) -> None:
    planned = run(study, "--quick", "--processes", "3", "--dry-run")
    assert "processes 1\n" in planned.stderr
    assert "processes 3\n" in run(study, "--processes", "3", "--dry-run").stderr


def test_dry_run_prints_an_estimate(study: Path) -> None:
    planned = run(study, "--dry-run")
    assert planned.exit_code == 0
    assert planned.stdout.split() == ["fake/cpu", "fake+slow/cpu"]
    assert "processes 2\nabout " in planned.stderr
    assert "starts and warm-up" in planned.stderr
    assert "rough estimate: 47.1 million multiply-adds per step" in planned.stderr
    assert "whole trainings" not in planned.stderr
    study.write_text("epochs = 2\n" + STUDY)
    assert "whole trainings" in run(study, "--dry-run").stderr


def test_bad_input_names_the_file_and_line(program: Callable[..., CompletedProcess[str]], study: Path) -> None:
    study.write_text("engines = ['fake']\nbatchsize = 8\n")
    done = program("run", study.name)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: two.toml:2: unknown key 'batchsize'; did you mean 'batch_size'?")
    for name, message in {
        "nowhere.toml": "cannot read nowhere.toml",
        f"{study.parent}/": "Is a directory",
        "nothing": "no study 'nothing' in ",
    }.items():
        error = run(name).exception
        assert isinstance(error, BadInput)
        assert message in str(error)


@pytest.mark.parametrize("options", [("--strict",), ("--columns", "speedup"), ("--format", "latex")])
def test_a_sweep_rejects_options_that_it_does_not_have(study: Path, options: tuple[str, ...]) -> None:
    study.write_text(STUDY + "[sweep]\nbatch_size = [8, 16]\n")
    refused = run(study, *options)
    assert isinstance(refused.exception, BadInput)
    assert options[0].removeprefix("--") in str(refused.exception)


def test_dry_run_prints_the_points_of_a_sweep(study: Path) -> None:
    study.write_text(STUDY + "[sweep]\nbatch_size = [8, 16]\n")
    planned = run(study, "--dry-run")
    assert planned.stdout == 2 * "fake/cpu\nfake+slow/cpu\n"
    assert "batch size 16:\nlenet, batch 16, fp32" in planned.stderr
