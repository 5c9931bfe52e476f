"""The GitHub action: its steps are run as a workflow runs them, on a package with a slow commit."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.versioned_package import ENGINE, TORCH_ENGINE, install_row, write_package

ROOT = Path(__file__).parents[1]
ACTION = yaml.safe_load((ROOT / "action.yml").read_text("utf-8"))
OPTIONS = (
    "--data synthetic --batch-size 16 --threads 1 --no-metrics --processes 5 --rounds-per-process 1"
    " --steps-per-round 3 --wait-idle 0"
)
PULL_REQUEST = "https://example.org/small-engine/pull/1"

GH = """#!/usr/bin/env bash
printf '%s\\n' "$@" > "$RUNNER_TEMP/comment.arguments"
"""
"""GitHub's program, which needs the network; the test reads what it was given."""


def evaluate(text: str, context: dict[str, str]) -> str:
    """Replace `${{ name }}` by its value; `a || b` is the first one that is not empty."""

    def value(match: re.Match[str]) -> str:
        return next(filter(None, (context[name.strip()] for name in match[1].split("||"))), "")

    return re.sub(r"\$\{\{(.*?)\}\}", value, text)


class Runner:
    """Runs the steps of the action in bash, with the files and variables of a GitHub runner."""

    def __init__(self, folder: Path, inputs: dict[str, str], event: dict[str, str]) -> None:
        (folder / "bin").mkdir(parents=True)
        (folder / "temp").mkdir()
        (folder / "bin" / "gh").write_text(GH)
        (folder / "bin" / "gh").chmod(0o755)
        install_row(folder / "site")
        self.folder = folder
        self.context = {"github.action_path": str(ROOT), "github.token": "token", "github.sha": "", **event}
        for name, declared in ACTION["inputs"].items():
            self.context[f"inputs.{name}"] = inputs.get(name, evaluate(str(declared.get("default", "")), self.context))
        self.variables = os.environ | {
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "RUNNER_TEMP": str(folder / "temp"),
            "GITHUB_ENV": str(folder / "env"),
            "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
            "PYTHONPATH": os.pathsep.join([str(folder / "site"), *filter(None, sys.path)]),
            "POLYBENCH_RESULTS": str(folder / "results"),
            "PIP_NO_INDEX": "1",
        }

    def run(self) -> subprocess.CompletedProcess[str]:
        """Run all steps but the installation; return the last one, or the first that fails."""
        steps = [step for step in ACTION["runs"]["steps"] if "run" in step and step["name"] != "Install polybench"]
        # In place of the installation: this interpreter and the packages of the tests.
        (programs := self.folder / "temp" / "polybench" / "bin").mkdir(parents=True, exist_ok=True)
        (programs / "polybench").write_text(f'#!/bin/sh\nexec {sys.executable} -m polybench "$@"\n')
        (programs / "polybench").chmod(0o755)
        for step in steps:
            done = self._step(step)
            if done.returncode:
                break
        return done

    def _step(self, step: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        own = {name: evaluate(value, self.context) for name, value in step.get("env", {}).items()}
        exported = Path(self.variables["GITHUB_ENV"])
        lines = exported.read_text().splitlines() if exported.exists() else []
        variables = self.variables | dict(line.split("=", 1) for line in lines) | own
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        return subprocess.run(
            command, env=variables, cwd=self.folder / "package", capture_output=True, text=True, check=False
        )


def pull_request(folder: Path, factors: tuple[float, float], engine: str = ENGINE, **inputs: str) -> Runner:
    (folder / "run").mkdir()
    base, head = write_package(folder / "run" / "package", list(factors), engine)
    event = {
        "github.event.pull_request.base.sha": base,
        "github.event.pull_request.head.sha": head,
        "github.event.pull_request.html_url": PULL_REQUEST,
    }
    return Runner(folder / "run", {"engine": "small", "options": OPTIONS, **inputs}, event)


@pytest.mark.wide  # installs three environments; cli/test_versions has the conditions, and the steps run below
def test_a_slow_pull_request_fails_with_a_comment_and_passes_without_a_condition(tmp_path: Path) -> None:
    runner = pull_request(tmp_path, (1.0, 1.15))
    done = runner.run()
    assert done.returncode == 1, done.stderr
    table = (runner.folder / "summary.md").read_text()
    assert "small@" in table
    assert re.search(r"\*\*.*slower|slower.*\*\*|\*\*.*times as fast", table), table
    given = (runner.folder / "temp" / "comment.arguments").read_text().split("\n")
    assert given[:3] == ["pr", "comment", PULL_REQUEST]
    assert (runner.folder / "temp" / "polybench.md").read_text() == table
    runner.context["inputs.fail-if"] = ""
    done = runner.run()
    assert done.returncode == 0, done.stderr


def test_a_commit_that_cannot_be_built_fails_with_the_reason(tmp_path: Path) -> None:
    runner = pull_request(tmp_path, (1.0, 1.0))
    runner.context["inputs.head"] = "0" * 40
    done = runner.run()
    assert done.returncode != 0


@pytest.mark.wide
@pytest.mark.parametrize(("factor", "code"), [(1.1, 1), (1.0, 0)], ids=["slow", "equal"])
def test_verdicts_of_twenty_pull_requests(tmp_path: Path, factor: float, code: int) -> None:
    codes = []
    for number in range(20):
        (folder := tmp_path / str(number)).mkdir()
        codes.append(pull_request(folder, (1.0, factor)).run().returncode)
    assert codes == [code] * 20


@pytest.mark.wide  # a busy machine makes real steps inconclusive
@pytest.mark.parametrize(("factor", "code"), [(1.5, 1), (1.0, 0)], ids=["slow", "equal"])
def test_pull_requests_of_steps_in_pytorch(tmp_path: Path, factor: float, code: int) -> None:
    pytest.importorskip("torch")
    options = (
        "--data synthetic --threads 1 --no-metrics --no-parity --processes 5 --rounds-per-process 2"
        " --steps-per-round 10"
    )
    runner = pull_request(tmp_path, (1.0, factor), TORCH_ENGINE, options=options)
    done = runner.run()
    assert done.returncode == code, done.stdout + done.stderr
    assert "small@" in (runner.folder / "summary.md").read_text()


def test_other_actions_are_pinned_and_inputs_are_never_part_of_a_script() -> None:
    for step in ACTION["runs"]["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", step["uses"])
        else:
            assert "${{" not in step["run"]
            assert step["shell"] == "bash"
