"""`--env` on the command line, in study files and from Python: names and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import polybench
from polybench.cli.options import Overrides, make_study
from polybench.errors import BadInput
from polybench.planning.study_file import parse
from polybench.schema.options import EngineName, Study, configuration_grid
from tests.cli.conftest import Run
from tests.environments import make_environment


def test_variants_are_sorted_and_the_environment_comes_last() -> None:
    name = EngineName.parse("torch+b+a@nightly-2.1")
    assert name == EngineName("torch", ("a", "b"), "nightly-2.1")
    assert str(name) == "torch+a+b@nightly-2.1"
    grid = configuration_grid(("torch@x", "torch", "torch@x"), ("cpu",), ("fp32", "bf16"))
    assert [configuration.name for configuration in grid] == [
        "torch@x/cpu", "torch@x/cpu/bf16", "torch/cpu", "torch/cpu/bf16",
        "torch@x/cpu#2", "torch@x/cpu/bf16#2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("engines", "env", "problem"),
    [
        (["torch@old+compile"], {"old": "/"}, r"write torch\+compile@old"),
        (["torch@"], {}, "invalid environment name ''"),
        (["torch@a/b"], {"a/b": "/"}, "invalid environment name 'a/b'"),
        (["torch@ol"], {"old": "/"}, "unknown environment 'ol'; known environments: old"),
        (["torch@old"], {}, "unknown environment 'old'; add --env old=PATH"),
        (["torch+compile", "tf@old"], {"old": "/", "new": "/"}, r"--env new: no engine uses it.*torch\+compile@new"),
    ],
    ids=["order", "empty", "letters", "unknown", "nowhere", "unused"],
)
def test_an_invalid_environment_is_bad_input(engines: list[str], env: dict[str, str], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        make_study(engines=tuple(engines), env=env)
    with pytest.raises(BadInput, match=problem):
        polybench.compare(engines=engines, env=env)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["old=none"], "no such folder"),
        (["old=."], "the folder has no bin/python"),
        (["old"], "expected name=path"),
        (["old=/", "--env", "old=/x"], "given twice"),
    ],
    ids=["missing", "none", "no-path", "twice"],
)
def test_a_missing_environment_is_exit_code_2(run: Run, given: list[str], problem: str) -> None:
    result = run("compare", "--engines", "fake@old", "--dry-run", "--env", *given)
    assert result.returncode == 2
    assert problem in result.stderr


def test_a_dry_run_lists_configurations_with_environments(run: Run, tmp_path: Path) -> None:
    venv = make_environment(tmp_path / "venv")
    given = ["compare", "--engines", "fake,fake+slow@old", "--env", f"old={venv}", "--dry-run"]
    result = run(*given, "--devices", "cpu")
    assert result.stdout.split() == ["fake/cpu", "fake+slow@old/cpu"]


def test_overridden_engines_drop_unused_environments(tmp_path: Path) -> None:
    venv = str(make_environment(tmp_path / "venv"))
    study = Study(("fake@a", "fake@b"), env={"a": venv, "b": venv})
    assert Overrides(engines=("fake@b",)).apply(study).env == {"b": venv}
    assert Overrides(env={"a": "/", "b": "/"}).apply(study).env == {"a": "/", "b": "/"}


def test_an_error_in_a_study_file_names_the_line(tmp_path: Path) -> None:
    venv = make_environment(tmp_path / "venv")
    right = f'engines = ["fake@old"]\n[env]\nold = "{venv}"\n'
    assert parse(right, "s.toml").env == {"old": str(venv)}
    for text, problem in (
        (right + 'new = "/"\n', "s.toml:4: --env new: no engine uses it"),
        (right.replace(str(venv), "/nowhere"), "s.toml:3: --env old=/nowhere: no such"),
        ("processes = 0\n" + right, "s.toml:1: processes"),
        ('engines = ["fake@old"]\n', "s.toml:1: fake@old: unknown environment 'old'"),
    ):
        with pytest.raises(BadInput) as error:
            parse(text, "s.toml")
        assert str(error.value).startswith(problem)


def test_quick_overrides_drop_unused_environments(tmp_path: Path) -> None:
    venv = make_environment(tmp_path / "venv")
    text = f'engines = ["fake@old"]\nquick = true\n[env]\nold = "{venv}"\n[quick_overrides]\nengines = ["fake"]\n'
    assert parse(text, "s.toml").env == {}
