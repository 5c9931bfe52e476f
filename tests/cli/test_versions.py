"""`polybench versions`: errors; tests/test_action.py has the comparison of two commits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import msgspec
import pytest

from polybench.cli.versions import make_source, verdict_code
from polybench.engines.source import read_source
from polybench.errors import BadInput
from polybench.runner import versions
from polybench.runner.versions import BuildFailed, Versions
from polybench.schema.options import Study
from polybench.schema.result import BaselineComparison
from tests.commands import refused
from tests.factories import measured, study
from tests.user_programs import PROGRAM
from tests.versioned_package import write_package


def test_invalid_requests_are_refused_before_anything_is_built(tmp_path: Path) -> None:
    base, _head = write_package(tmp_path / "package", [1.0, 1.1])
    given = ("--checkout", tmp_path / "package", "--engines", "fake")
    assert "no commit 'missing'" in refused("versions", base, "missing", *given)
    assert "expected either" in refused("versions", "a", "b", "--engines", "fake")
    assert "expected one engine" in refused("versions", base, "main", *given, "--engines", "fake,torch")
    assert "expected one device" in refused("versions", base, "main", *given, "--precision", "fp32,bf16")
    assert "expected VERDICT=PERCENT" in refused("versions", base, "main", *given, "--fail-if", "slower")


def test_a_version_is_not_compared_with_itself(tmp_path: Path) -> None:
    (commit,) = write_package(tmp_path / "package", [1.0])
    message = refused("versions", commit, "main", "--checkout", tmp_path / "package", "--engines", "fake")
    assert "are the same version" in message


def commit_all(folder: Path, message: str) -> str:
    git = ["git", "-C", str(folder), "-c", "user.name=A", "-c", "user.email=a@b.c"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", message]):
        subprocess.run([*git, *command], check=True)
    return subprocess.check_output([*git, "rev-parse", "HEAD"], text=True)[:12]


def test_two_commits_of_a_program_are_two_rows_with_the_files_of_their_commits(tmp_path: Path) -> None:
    (folder := tmp_path / "code").mkdir()
    program = folder / "mine.py"
    program.write_text(f"from part import PART\n{PROGRAM}")
    commits = []
    for part in ("first", "second"):
        (folder / "part.py").write_text(f"PART = {part!r}\n")
        commits.append(commit_all(folder, part))
    (folder / "other.py").write_text(PROGRAM)
    commits.append(commit_all(folder, "other"))
    given = Study(engines=(str(program),), parity=False)
    source, wanted = make_source(given, None, folder)
    assert source.unbuilt(commits[0], "HEAD~1") == commits[:2]
    pair = source.pair(wanted, commits[0], "HEAD~1")
    assert source.unbuilt(commits[0], "HEAD~1") == []
    assert source.between(commits[0], "HEAD") == commits
    names = [Path(engine).name for engine in pair.engines]
    assert names == [f"mine-{commits[0]}.py", f"mine-{commits[1]}.py"]
    assert pair.env == {}
    for engine, part in zip(pair.engines, ("first", "second"), strict=True):
        assert part in Path(engine).with_name("part.py").read_text()
        assert read_source(Path(engine)).text == program.read_text()
    missing, wanted = make_source(msgspec.structs.replace(given, engines=(str(folder / "other.py"),)), None, folder)
    with pytest.raises(BuildFailed, match=rf"commit {commits[0]} has no file other\.py"):
        missing.pair(wanted, commits[0], "HEAD")
    (outside := tmp_path / "mine.py").write_text(PROGRAM)
    source, _ = make_source(msgspec.structs.replace(given, engines=(str(outside),)), None, folder)
    assert source.program is None  # it measures the package of the checkout


@pytest.mark.parametrize(
    ("base", "head"), [("2.12.1", "2.13.0+cpu"), ("2.12.1+cpu", "2.13.0"), ("2.12.1+cpu", "2.13.0+cu130")]
)
def test_builds_of_different_kinds_are_not_compared(base: str, head: str) -> None:
    message = refused("versions", base, head, "--package", "torch", "--engines", "torch")
    assert f"{base} and {head} are different builds of torch" in message
    with pytest.raises(BadInput, match="different builds of torch"):
        Versions("torch").between(base, head)


def test_releases_between_two_have_their_kind_of_build(monkeypatch: pytest.MonkeyPatch) -> None:
    releases = ["2.12.0", "2.12.0+cpu", "2.12.1", "2.12.1+cu126", "2.13.0", "2.13.0+cpu", "2.13.0+cu130"]
    monkeypatch.setattr(versions, "_releases", lambda _package: releases)
    assert Versions("torch").between("2.12.0", "2.13.0") == ["2.12.0", "2.12.1", "2.13.0"]
    assert Versions("torch").between("2.12.0+cpu", "2.13.0+cpu") == ["2.12.0+cpu", "2.13.0+cpu"]
    assert Versions("torch").newest() == ("2.12.1+cu126", "2.13.0+cu130")


def test_a_release_without_a_tag_is_not_installed_as_a_build_with_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(versions, "_run", lambda command, _folder: commands.append(command))
    (tmp_path / "lib/python3.11/site-packages").mkdir(parents=True)
    Versions("torch")._build_python("2.13.0", tmp_path)
    assert [command[-1] for command in commands[1:]] == ["torch===2.13.0"] * 2


@pytest.mark.parametrize(
    ("seconds", "conditions", "code"),
    [
        (0.020, {"slower": 0.05}, 1),
        (0.020, {"slower": 0.5}, 0),
        (0.020, {"faster": 0.05}, 0),
        (0.010, {"faster": 0.05}, 1),
        (0.010, {"slower": 0.05}, 0),
    ],
)
def test_a_condition_is_about_one_direction(seconds: float, conditions: dict[str, float], code: int) -> None:
    document = study(measured("torch@base/cpu", 0.0165), measured("torch@head/cpu", seconds))
    assert verdict_code(document, conditions) == code


@pytest.mark.parametrize(
    ("speedup", "interval", "verdict", "code"),
    [
        (0.8, (0.7, 0.9), " is slower by 25.0% than torch@base/cpu", 1),
        (0.97, (0.96, 0.98), " is slower by 3.1% than torch@base/cpu", 0),
        (1.0, (0.995, 1.005), ": no difference above 1.0%", 0),
        (0.995, (0.97, 1.02), ": cannot tell: between 3.1% slower and 2% faster", 0),
        (0.99, (0.90, 1.08), ": cannot tell: between 11% slower and 7.4% faster", 4),
        (0.9, None, ": cannot tell: increase --processes", 4),
    ],
)
def test_a_change_that_the_interval_leaves_open_is_no_success(
    speedup: float, interval: tuple[float, float] | None, verdict: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    compared = BaselineComparison("torch@base/cpu", speedup, interval)
    document = study(measured("torch@base/cpu", 0.0165), measured("torch@head/cpu", 0.02, vs_baseline=compared))
    assert verdict_code(document, {"slower": 0.05}) == code
    assert capsys.readouterr().err == f"torch@head/cpu{verdict}\n"


def test_a_change_that_chance_explains_meets_no_condition() -> None:
    document = study(measured("torch@base/cpu", 0.0165), head := measured("torch@head/cpu", 0.020))
    assert head.vs_baseline is not None
    head.vs_baseline = msgspec.structs.replace(head.vs_baseline, p_value=0.5)
    assert verdict_code(document, {"slower": 0.05}) == 4  # its interval excludes 1
