"""Which Julia is found, in which order, and what is wrong with it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.finding import (
    EXECUTABLE,
    FOUND_BY,
    PROJECT,
    Julia,
    check,
    find,
    in_project,
    installed,
)
from polybench.engines.flux.julia.remembered import configuration_file, recall, remember
from tests.engines.flux.julia.conftest import COMPLETE, JULIACALL, Make


def test_both_variables_win(monkeypatch: pytest.MonkeyPatch) -> None:
    remember("/remembered/julia", "/remembered")
    monkeypatch.setenv(EXECUTABLE, "/given/julia")
    monkeypatch.setenv(PROJECT, "/given")
    assert find() == Julia("/given/julia", "/given", f"{EXECUTABLE} and {PROJECT}")
    monkeypatch.setenv(FOUND_BY, "juliapkg")
    assert find().found_by == "juliapkg"


@pytest.mark.parametrize(("there", "missing"), [(EXECUTABLE, PROJECT), (PROJECT, EXECUTABLE)])
def test_one_variable_alone_is_an_error(there: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(there, "/given")
    with pytest.raises(Unavailable, match=f"{there} is set and {missing} is not") as caught:
        find()
    assert caught.value.remedy == f"set {missing}, or unset {there}"


def test_what_setup_remembered_is_next() -> None:
    file = remember("/remembered/julia", "/remembered")
    assert find() == Julia("/remembered/julia", "/remembered", str(file))


def test_remembering_leaves_the_rest_of_the_configuration() -> None:
    configuration_file().parent.mkdir(parents=True)
    configuration_file().write_text('[other]\nkey = "value"\n')
    assert recall() is None
    remember("/a/julia", "/a")
    remember("/b/julia", "/b")
    assert recall() == ("/b/julia", "/b")
    assert 'key = "value"' in configuration_file().read_text()


@pytest.mark.parametrize(
    ("text", "reason"),
    [("[flux\n", "cannot be read"), ('[flux]\njulia = "/a"\n', r"\[flux\] without 'project'")],
)
def test_a_broken_configuration_is_told(text: str, reason: str) -> None:
    configuration_file().parent.mkdir(parents=True)
    configuration_file().write_text(text)
    with pytest.raises(Unavailable, match=reason) as caught:
        find()
    assert "polybench setup flux" in caught.value.remedy


def test_juliapkg_is_last_and_never_asked_to_download(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("juliapkg")
    from juliapkg import deps
    from juliapkg.state import STATE

    monkeypatch.setitem(STATE, "project", str(tmp_path))
    monkeypatch.setattr(deps, "can_skip_resolve", lambda: {"executable": "/found/julia"})
    assert find() == Julia("/found/julia", str(tmp_path), "juliapkg")
    monkeypatch.setattr(deps, "can_skip_resolve", lambda: False)
    with pytest.raises(Unavailable, match="no Julia is set up for polybench yet") as caught:
        find()
    assert caught.value.remedy == "polybench setup flux"


def test_without_juliapkg_juliacall_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for look in (find, lambda: check(Julia("/a/julia", "/a", "a test"))):
        with pytest.raises(Unavailable, match="juliacall is not installed") as caught:
            look()
        assert caught.value.remedy == "pip install 'polybench[flux]'"


def test_juliapkg_that_breaks_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("juliapkg")
    monkeypatch.setitem(sys.modules, "juliapkg.deps", None)
    with pytest.raises(Unavailable, match="juliapkg cannot say"):
        find()


def test_a_complete_julia_passes(executable: Make, project: Make) -> None:
    check(Julia(executable(), project(), "a test"))


def test_manifests_of_a_julia_version_come_first(project: Make) -> None:
    project({"Flux": "0.15.0"})
    assert installed(project(COMPLETE, "Manifest-v1.11.toml"))["Flux"] == "0.16.10"


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("julia version 1.9.4", r"Julia 1\.9\.4 is too old, polybench needs 1\.10 or newer"),
        ("Python 3.11", "is no Julia: --version gives 'Python 3.11"),
    ],
)
def test_the_wrong_julia(says: str, reason: str, executable: Make, project: Make) -> None:
    with pytest.raises(Unavailable, match=reason) as caught:
        check(Julia(executable(says), project(), "a test"))
    assert "polybench setup flux" in caught.value.remedy


def test_a_missing_julia() -> None:
    with pytest.raises(Unavailable, match=r"there is no Julia at /nowhere/julia \(from a test\)"):
        check(Julia("/nowhere/julia", "/nowhere", "a test"))


def test_a_julia_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not executable")
    with pytest.raises(Unavailable, match="does not run"):
        check(Julia(str(tmp_path / "text"), "/nowhere", "a test"))


def test_a_half_installed_project_names_what_it_lacks(executable: Make, project: Make) -> None:
    julia = Julia(executable(), project({"PythonCall": "0.9.34"}), "a test")
    with pytest.raises(Unavailable, match="lacks Flux, PrecompileTools") as caught:
        check(julia)
    assert caught.value.remedy == f"polybench setup flux --julia {julia.executable} --project {julia.project}"
    with pytest.raises(Unavailable, match="lacks Flux, PythonCall, PrecompileTools") as caught:
        check(julia._replace(project="/nowhere", found_by="juliapkg"))
    assert caught.value.remedy == "polybench setup flux"


def test_a_broken_manifest_is_told(executable: Make, project: Make) -> None:
    folder = project()
    Path(folder, "Manifest.toml").write_text("[[deps")
    with pytest.raises(Unavailable, match=r"Manifest\.toml cannot be read"):
        check(Julia(executable(), folder, "a test"))


def test_juliacall_and_pythoncall_must_be_the_same_version(executable: Make, project: Make) -> None:
    julia = Julia(executable(), project(COMPLETE | {"PythonCall": "0.9.20"}), "a test")
    with pytest.raises(Unavailable, match=r"juliacall is 0\.9\.34, but PythonCall .* is 0\.9\.20") as caught:
        check(julia)
    assert caught.value.remedy == "pip install juliacall==0.9.20"


@pytest.mark.parametrize("packages", [{"PythonCall": JULIACALL}, COMPLETE | {"PythonCall": "0.9.20"}])
def test_what_an_environment_lacks_is_added_there_and_nothing_is_remembered(
    packages: dict[str, str], executable: Make, project: Make
) -> None:
    remember(executable(), "/remembered")
    julia = in_project(project(packages))
    assert julia == Julia(executable(), project(packages), "--env")
    with pytest.raises(Unavailable) as caught:
        check(julia)
    program, folder, option, code = shlex.split(caught.value.remedy)
    assert (program, folder, option) == (julia.executable, f"--project={julia.project}", "-e")
    assert code == (
        'using Pkg; Pkg.add([PackageSpec("Flux"), PackageSpec("PrecompileTools"),'
        f' PackageSpec(name="PythonCall", version="{JULIACALL}")])'
    )
