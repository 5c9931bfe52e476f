"""`--env` on the command line, in study files and from Python: what is refused, and how a name is written."""

from __future__ import annotations

from pathlib import Path

import pytest

import polybench
from polybench.commands.changes import Changes, make_study
from polybench.core.errors import BadInput
from polybench.core.names import EngineName
from polybench.core.spec import Study, cells
from polybench.planning.study_file import parse
from tests.commands.test_cli import Run, run
from tests.environments import environment

__all__ = ["run"]


def test_variants_are_sorted_and_the_environment_comes_last() -> None:
    name = EngineName.read("torch+b+a@nightly-2.1")
    assert name == EngineName("torch", ("a", "b"), "nightly-2.1")
    assert str(name) == "torch+a+b@nightly-2.1"
    grid = cells(("torch@x", "torch", "torch@x"), ("cpu",), ("fp32", "bf16"))
    assert [cell.name for cell in grid] == [
        "torch@x/cpu", "torch@x/cpu/bf16", "torch/cpu", "torch/cpu/bf16",
        "torch@x/cpu#2", "torch@x/cpu/bf16#2",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("engines", "env", "problem"),
    [
        (["torch@old+compile"], {"old": "/"}, r"write torch\+compile@old"),
        (["torch@"], {}, "'' is no name of an environment"),
        (["torch@a/b"], {"a/b": "/"}, "'a/b' is no name of an environment"),
        (["torch@ol"], {"old": "/"}, "no environment is called 'ol'; environments are: old"),
        (["torch@old"], {}, r"say where it is \(--env old=PATH\)"),
        (
            ["torch+compile", "tf@old"],
            {"old": "/", "new": "/"},
            r"--env new: no engine has it.*torch\+compile@new",
        ),
    ],
    ids=["order", "empty", "letters", "unknown", "nowhere", "unused"],
)
def test_what_is_refused(engines: list[str], env: dict[str, str], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        make_study(engines=tuple(engines), env=env)
    with pytest.raises(BadInput, match=problem):
        polybench.compare(engines=engines, env=env)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (["old=none"], "no such folder"),
        (["old=."], "the folder has no bin/python"),
        (["old"], "write name=path"),
        (["old=/", "--env", "old=/x"], "given twice"),
    ],
    ids=["missing", "none", "no-path", "twice"],
)
def test_the_command_line_ends_with_2_where_there_is_no_environment(
    run: Run, given: list[str], problem: str
) -> None:
    result = run("compare", "--engines", "fake@old", "--dry-run", "--env", *given)
    assert result.returncode == 2
    assert problem in result.stderr


def test_the_cells_of_an_environment_are_in_a_plan(run: Run, tmp_path: Path) -> None:
    venv = environment(tmp_path / "venv")
    given = ["compare", "--engines", "fake,fake+slow@old", "--env", f"old={venv}", "--dry-run"]
    result = run(*given, "--devices", "cpu")
    assert result.stdout.split() == ["fake/cpu", "fake+slow@old/cpu"]


def test_other_engines_leave_environments_behind(tmp_path: Path) -> None:
    venv = str(environment(tmp_path / "venv"))
    study = Study(("fake@a", "fake@b"), env={"a": venv, "b": venv})
    assert Changes(engines=("fake@b",)).applied_to(study).env == {"b": venv}
    assert Changes(env={"a": "/", "b": "/"}).applied_to(study).env == {"a": "/", "b": "/"}


def test_a_study_file_blames_the_right_line(tmp_path: Path) -> None:
    venv = environment(tmp_path / "venv")
    right = f'engines = ["fake@old"]\n[env]\nold = "{venv}"\n'
    assert parse(right, "s.toml").env == {"old": str(venv)}
    for text, problem in (
        (right + 'new = "/"\n', "s.toml:4: --env new: no engine has it"),
        (right.replace(str(venv), "/nowhere"), "s.toml:3: --env old=/nowhere: there is no such"),
        ("processes = 0\n" + right, "s.toml:1: processes"),
        ('engines = ["fake@old"]\n', "s.toml:1: fake@old: no environment is called 'old'"),
    ):
        with pytest.raises(BadInput) as error:
            parse(text, "s.toml")
        assert str(error.value).startswith(problem)


def test_a_quick_study_with_other_engines_has_no_environment_that_it_does_not_need(tmp_path: Path) -> None:
    venv = environment(tmp_path / "venv")
    text = f'engines = ["fake@old"]\nquick = true\n[env]\nold = "{venv}"\n[when_quick]\nengines = ["fake"]\n'
    assert parse(text, "s.toml").env == {}
