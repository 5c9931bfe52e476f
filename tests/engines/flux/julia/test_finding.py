"""Which Julia is found, in which order, and what is wrong with it."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from polybench.core.errors import Unavailable
from polybench.engines.flux.julia.bounds import PACKAGES, SCRIPTS
from polybench.engines.flux.julia.finding import (
    ENVIRONMENT,
    EXECUTABLE,
    FOUND_BY,
    PROJECT,
    VARIABLES,
    Julia,
    belongs_to_another,
    check,
    check_version,
    find,
    has_cuda,
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
    assert recall() == {"julia": "/b/julia", "project": "/b"}
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


def test_the_manifest_is_that_which_this_julia_reads(executable: Make, project: Make) -> None:
    project({"Flux": "0.15.0"})
    project({"Flux": "0.16.11"}, "Manifest-v1.9.toml")
    folder = project(COMPLETE, "Manifest-v1.11.toml")

    def flux(version: str) -> str:
        return installed(Julia(executable(f"julia version {version}"), folder, f"test of {version}"))["Flux"]

    assert flux("1.11.4") == "0.16.10"
    assert flux("1.12.0") == "0.15.0"
    Path(folder, "Manifest.toml").unlink()
    assert installed(Julia(executable("julia version 1.12.1"), folder, "another test")) == {}


@pytest.mark.parametrize(
    ("packages", "reason"),
    [
        ({"Flux": "0.14.25"}, r"has Flux 0\.14\.25 \(polybench takes 0\.16\.10\)"),
        ({"Flux": "0.16.9"}, r"has Flux 0\.16\.9"),
        (
            {"CUDA": "6.0.1", "JSON": "2.0.0"},
            r"has JSON 2\.0\.0 \(polybench takes 0\.21\.4, 1\), CUDA 6\.0\.1",
        ),
    ],
)
def test_versions_outside_of_the_bounds_are_told(
    packages: dict[str, str], reason: str, executable: Make, project: Make
) -> None:
    with pytest.raises(Unavailable, match=reason) as caught:
        check(Julia(executable(), project(COMPLETE | packages), "a test"))
    assert "polybench setup flux" in caught.value.remedy


def test_versions_within_the_bounds_are_not(executable: Make, project: Make) -> None:
    newer = {"Flux": "0.16.11", "CUDA": "5.9.1", "JSON": "0.21.4", "cuDNN": "1.4.0+1"}
    check(Julia(executable(), project(COMPLETE | newer), "a test"))


def test_the_plain_scripts_need_npz(executable: Make, project: Make) -> None:
    julia = Julia(
        executable(), project({name: COMPLETE[name] for name in COMPLETE if name != "NPZ"}), "a test"
    )
    check(julia)
    with pytest.raises(Unavailable, match="lacks NPZ"):
        check(julia, (*PACKAGES, *SCRIPTS))


@pytest.mark.parametrize("name", ["Flux", "PythonCall"])
def test_what_only_another_package_brings_is_lacking(name: str, executable: Make, project: Make) -> None:
    julia = Julia(executable(), project(indirect=(name,)), "a test")
    with pytest.raises(Unavailable, match=rf"lacks {name} \(it is there for other packages only\)") as caught:
        check(julia)
    assert caught.value.remedy == julia.setup


def test_what_the_package_alone_loads_may_come_with_another(executable: Make, project: Make) -> None:
    check(Julia(executable(), project(indirect=("JSON", "PrecompileTools")), "a test"))


@pytest.mark.parametrize("indirect", [("CUDA",), ("cuDNN",)])
def test_cuda_that_only_another_package_brings_is_in_nobodys_way(
    indirect: tuple[str, ...], executable: Make, project: Make
) -> None:
    there = COMPLETE | {"CUDA": "5.9.1", "cuDNN": "1.4.0"}
    assert has_cuda(Julia(executable(), project(there), "a test"))
    other = Julia(executable(), project(there | {"CUDA": "6.0.1"}, indirect=("CUDA", *indirect)), "a test")
    assert not has_cuda(Julia(executable(), project(there, indirect=indirect), "a test"))
    assert not has_cuda(other)
    check(other)


def test_a_manifest_without_a_project_is_none(executable: Make, project: Make) -> None:
    folder = project()
    Path(folder, "Project.toml").unlink()
    with pytest.raises(Unavailable, match="lacks Flux"):
        check(Julia(executable(), folder, "a test"))


def test_another_polybenchs_package_is_known(executable: Make, project: Make, tmp_path: Path) -> None:
    own = Julia(executable(), project(), "a test")
    assert not belongs_to_another(own)
    assert not belongs_to_another(own._replace(project="/nowhere"))
    other = own._replace(project=project(developed=tmp_path / "other"))
    assert belongs_to_another(other)
    check(other)


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("julia version 1.9.4", r"Julia 1\.9\.4 is none that polybench takes, which is 1\.10\.3 - 1\.12"),
        ("julia version 1.13.0", r"Julia 1\.13\.0 is none that polybench takes"),
        ("Python 3.11", "is no Julia: --version gives 'Python 3.11"),
    ],
)
def test_the_wrong_julia(says: str, reason: str, executable: Make, project: Make) -> None:
    with pytest.raises(Unavailable, match=reason) as caught:
        check(Julia(executable(says), project(), "a test"))
    assert "polybench setup flux" in caught.value.remedy


@pytest.mark.parametrize(
    ("found_by", "remedy"),
    [
        ("the file", "polybench setup flux --julia PATH --project '/my project'"),
        (ENVIRONMENT, "polybench setup flux --julia PATH"),  # its project stays as it is
        (VARIABLES, "set PYTHON_JULIACALL_EXE to it"),
        ("juliapkg", "polybench setup flux"),
    ],
)
def test_what_to_do_with_another_version(found_by: str, remedy: str, executable: Make) -> None:
    with pytest.raises(Unavailable) as caught:
        check_version(Julia(executable("julia version 1.9.4"), "/my project", found_by))
    assert caught.value.remedy == f"install one of these, for example with juliaup, then: {remedy}"


def test_a_missing_julia() -> None:
    with pytest.raises(Unavailable, match=r"there is no Julia at /nowhere/julia \(from a test\)"):
        check(Julia("/nowhere/julia", "/nowhere", "a test"))


def test_a_julia_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("not executable")
    with pytest.raises(Unavailable, match="does not run"):
        check(Julia(str(tmp_path / "text"), "/nowhere", "a test"))


def test_a_half_installed_project_names_what_it_lacks(executable: Make, project: Make) -> None:
    julia = Julia(executable(), project({"PythonCall": "0.9.34"}), "a test")
    with pytest.raises(Unavailable, match="lacks Flux, JSON, PrecompileTools") as caught:
        check(julia)
    assert caught.value.remedy == f"polybench setup flux --julia {julia.executable} --project {julia.project}"
    with pytest.raises(Unavailable, match="lacks Flux, JSON, PythonCall, PrecompileTools") as caught:
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
    assert code.startswith("using Pkg; Pkg.add([")
    assert f'PackageSpec(name="PythonCall", version="{JULIACALL}")' in code
    assert 'PackageSpec(name="Flux", version=Pkg.Types.semver_spec("0.16.10"))' in code
