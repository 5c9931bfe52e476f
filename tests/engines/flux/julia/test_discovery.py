"""The order in which polybench looks for Julia, and the checks of the one that it finds."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from polybench.engines.flux.julia import discovery, setup
from polybench.engines.flux.julia.discovery import (
    ENVIRONMENT,
    EXECUTABLE,
    FOUND_BY,
    PACKAGES,
    PROJECT,
    SCRIPT_PACKAGES,
    VARIABLES,
    Julia,
    check,
    check_packages,
    check_version,
    configuration_file,
    find,
    for_project,
    has_cuda,
    installed,
    save_julia,
    saved_julia,
)
from polybench.errors import EngineUnavailable
from tests.engines.flux.julia.conftest import COMPLETE, JULIACALL, Make

SAVED = Julia("/saved/julia", "/saved", "a test")


def configure(text: str) -> None:
    configuration_file().parent.mkdir(parents=True)
    configuration_file().write_text(text)


def test_both_variables_take_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    save_julia(SAVED)
    monkeypatch.setenv(EXECUTABLE, "/given/julia")
    monkeypatch.setenv(PROJECT, "/given")
    assert find() == Julia("/given/julia", "/given", f"{EXECUTABLE} and {PROJECT}")
    monkeypatch.setenv(FOUND_BY, "juliapkg")
    assert find().found_by == "juliapkg"


@pytest.mark.parametrize(("present", "missing"), [(EXECUTABLE, PROJECT), (PROJECT, EXECUTABLE)])
def test_single_variable_is_an_error(present: str, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(present, "/given")
    with pytest.raises(EngineUnavailable, match=f"{present} is set, but {missing} is not") as caught:
        find()
    assert caught.value.hint == f"set {missing}, or unset {present}"


def test_packages_without_files_in_any_depot_are_listed(executable: Make, project: Make) -> None:
    julia = Julia(executable(then="printf 'Zygote\\nFlux\\n'"), project(), "a test")
    assert discovery.absent_packages(julia) == ["Flux", "Zygote"]
    assert discovery.absent_packages(julia._replace(executable=executable(then="echo Flux; exit 1"))) == []


def test_saved_julia_is_second() -> None:
    file = save_julia(SAVED)
    assert find() == SAVED._replace(found_by=str(file))


def test_saving_keeps_other_tables() -> None:
    tables = '[flux-precompiled]\n"/project" = "c6e3"\n\n'
    configure(tables)
    assert saved_julia() is None
    save_julia(SAVED)
    save_julia(SAVED._replace(library="/lib/libjulia.so", bindir="/bin"))
    assert configuration_file().read_text() == (
        f'{tables}[flux]\njulia = "/saved/julia"\nproject = "/saved"\nlibrary = "/lib/libjulia.so"\nbindir = "/bin"\n'
    )
    save_julia(None)
    assert configuration_file().read_text().strip() == tables.strip()


@pytest.mark.parametrize(
    ("text", "reason"), [("[flux\n", "cannot be read"), ('[flux]\njulia = "/a"\n', r"\[flux\] without 'project'")]
)
def test_broken_configuration_is_reported(text: str, reason: str) -> None:
    configure(text)
    with pytest.raises(EngineUnavailable, match=reason) as caught:
        find()
    assert "polybench setup flux" in caught.value.hint


def test_juliapkg_is_last_and_never_downloads(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("juliapkg")
    from juliapkg import deps
    from juliapkg.state import STATE

    monkeypatch.setitem(STATE, "project", str(tmp_path))
    monkeypatch.setattr(deps, "can_skip_resolve", lambda: {"executable": "/found/julia"})
    assert find() == Julia("/found/julia", str(tmp_path), "juliapkg")
    monkeypatch.setattr(deps, "can_skip_resolve", lambda: False)
    with pytest.raises(EngineUnavailable, match="Julia is not set up for polybench") as caught:
        find()
    assert caught.value.hint == "polybench setup flux"


def test_without_juliapkg_juliacall_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    for function in (find, lambda: check(Julia("/a/julia", "/a", "a test"))):
        with pytest.raises(EngineUnavailable, match="juliacall is not installed") as caught:
            function()
        assert caught.value.hint == "pip install 'polybench-dl[flux]'"


def test_broken_juliapkg_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("juliapkg")
    monkeypatch.setitem(sys.modules, "juliapkg.deps", None)
    with pytest.raises(EngineUnavailable, match="juliapkg cannot say"):
        find()


@pytest.mark.parametrize("newer", [{}, {"Flux": "0.16.11", "CUDA": "5.9.1", "JSON": "0.21.4", "cuDNN": "1.4.0+1"}])
@pytest.mark.parametrize(
    "indirect", [(), ("JSON", "PrecompileTools")]
)  # another package may bring what PolyBench needs
def test_complete_julia_passes(
    newer: dict[str, str], indirect: tuple[str, ...], executable: Make, project: Make
) -> None:
    check(Julia(executable(), project(COMPLETE | newer, indirect=indirect), "a test"))


def test_manifest_depends_on_the_julia_version(executable: Make, project: Make) -> None:
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
    ("packages", "indirect", "reason"),
    [
        ({"Flux": "0.14.25"}, (), r"unsupported versions: Flux 0\.14\.25 \(expected 0\.16\.10\)"),
        ({"CUDA": "6.0.1", "JSON": "2.0.0"}, (), r"JSON 2\.0\.0 \(expected 0\.21\.4, 1\), CUDA 6\.0\.1"),
        ({}, ("Flux",), r"lacks Flux \(it is only an indirect dependency\)"),
        ({}, ("PythonCall",), r"lacks PythonCall \(it is only an indirect dependency\)"),
    ],
)
def test_unsupported_project_is_reported(
    packages: dict[str, str], indirect: tuple[str, ...], reason: str, executable: Make, project: Make
) -> None:
    julia = Julia(executable(), project(COMPLETE | packages, indirect=indirect), "a test")
    with pytest.raises(EngineUnavailable, match=reason) as caught:
        check(julia)
    assert (
        caught.value.hint == julia.setup == f"polybench setup flux --julia {julia.executable} --project {julia.project}"
    )


def test_plain_scripts_need_npz(executable: Make, project: Make) -> None:
    julia = Julia(executable(), project({name: COMPLETE[name] for name in COMPLETE if name != "NPZ"}), "a test")
    check(julia)
    with pytest.raises(EngineUnavailable, match="lacks NPZ"):
        check(julia, (*PACKAGES, *SCRIPT_PACKAGES))


@pytest.mark.parametrize("indirect", [("CUDA",), ("cuDNN",)])
def test_indirect_cuda_is_ignored(indirect: tuple[str, ...], executable: Make, project: Make) -> None:
    packages = COMPLETE | {"CUDA": "5.9.1", "cuDNN": "1.4.0"}
    assert has_cuda(Julia(executable(), project(packages), "a test"))
    assert not has_cuda(Julia(executable(), project(packages, indirect=indirect), "a test"))
    other = Julia(executable(), project(packages | {"CUDA": "6.0.1"}, indirect=("CUDA", *indirect)), "a test")
    assert not has_cuda(other)
    check(other)


@pytest.mark.parametrize(
    ("printed", "reason"),
    [
        ("julia version 1.9.4", r"Julia 1\.9\.4 is not supported: expected 1\.10\.3 or newer, below 2"),
        ("julia version 2.0.0", r"Julia 2\.0\.0 is not supported"),
        ("Python 3.11", "is not Julia: --version printed 'Python 3.11"),
        ("", r"no Julia at /.*/julia \(from a test\)"),
        ("not executable", r"no Julia at /.*/julia \(from a test\)"),
    ],
)
def test_unsupported_julia_is_rejected(printed: str, reason: str, executable: Make, project: Make) -> None:
    julia = Julia(executable(printed), project(), "a test")
    if not printed:
        Path(julia.executable).unlink()
    elif printed == "not executable":
        Path(julia.executable).chmod(0o644)
    with pytest.raises(EngineUnavailable, match=reason) as caught:
        check(julia)
    assert "polybench setup flux" in caught.value.hint


@pytest.mark.parametrize(
    ("program", "reason"),
    [("exec yes", "it printed more than 1 MiB"), ("exec sleep 9", "no answer within 0.5 s"), ("exit 3", "printed ''")],
)
def test_a_program_that_is_not_julia_is_bounded(
    program: str, reason: str, executable: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name in ((discovery, "_VERSION_SECONDS"), (setup, "_PROBE_SECONDS")):
        monkeypatch.setattr(module, name, 0.5 if "sleep" in program else 60.0)
    julia = Julia(executable(), "a project", "a test")
    Path(julia.executable).write_text(f"#!/bin/sh\n{program}\n")
    with pytest.raises(EngineUnavailable, match=rf"is not Julia: .*{reason}"):
        discovery.version_of(julia)
    assert setup.save(julia).exists()  # without the paths that the program should print


@pytest.mark.parametrize(
    ("found_by", "hint"),
    [
        ("the file", "polybench setup flux --julia PATH --project '/my project'"),
        (ENVIRONMENT, "polybench setup flux --julia PATH"),  # setup does not change the project of an environment
        (VARIABLES, f"correct {VARIABLES}, or unset both"),
        ("juliapkg", "polybench setup flux"),
    ],
)
def test_hint_for_unsupported_julia(found_by: str, hint: str, executable: Make) -> None:
    with pytest.raises(EngineUnavailable) as caught:
        check_version(Julia(executable("julia version 1.9.4"), "/my project", found_by))
    assert caught.value.hint == f"install a supported version, for example with juliaup, then: {hint}"


def test_incomplete_project_lists_missing_packages(executable: Make, project: Make) -> None:
    julia = Julia(executable(), project({"PythonCall": "0.9.34"}), "a test")
    with pytest.raises(EngineUnavailable, match="lacks Flux, JSON, PrecompileTools") as caught:
        check(julia)
    assert caught.value.hint == f"polybench setup flux --julia {julia.executable} --project {julia.project}"
    with pytest.raises(EngineUnavailable, match="lacks Flux, JSON, PythonCall, PrecompileTools") as caught:
        check(julia._replace(project="/nowhere", found_by="juliapkg"))
    assert caught.value.hint == "polybench setup flux"


def test_broken_manifest_is_reported(executable: Make, project: Make) -> None:
    folder = project()
    Path(folder, "Manifest.toml").write_text("[[deps")
    with pytest.raises(EngineUnavailable, match=r"Manifest\.toml cannot be read"):
        check(Julia(executable(), folder, "a test"))


def test_juliacall_and_pythoncall_must_have_the_same_version(executable: Make, project: Make) -> None:
    julia = Julia(executable(), project(COMPLETE | {"PythonCall": "0.9.20"}), "a test")
    with pytest.raises(EngineUnavailable, match=r"juliacall is 0\.9\.34, but PythonCall .* is 0\.9\.20") as caught:
        check(julia)
    assert caught.value.hint == "pip install juliacall==0.9.20"


@pytest.mark.parametrize("packages", [{"PythonCall": JULIACALL}, COMPLETE | {"PythonCall": "0.9.20"}])
def test_hint_for_an_environment_adds_packages_to_it(packages: dict[str, str], executable: Make, project: Make) -> None:
    save_julia(Julia(executable(), "/saved", "a test"))
    julia = for_project(project(packages))
    assert julia == Julia(executable(), project(packages), "--env")
    with pytest.raises(EngineUnavailable) as caught:
        check(julia)
    program, folder, option, code = shlex.split(caught.value.hint)
    assert (program, folder, option) == (julia.executable, f"--project={julia.project}", "-e")
    assert code.startswith("using Pkg; Pkg.add([")
    assert f'PackageSpec(name="PythonCall", version="{JULIACALL}")' in code
    assert 'PackageSpec(name="Flux", version=Pkg.Types.semver_spec("0.16.10"))' in code


@pytest.mark.parametrize(
    ("found_by", "hint"),
    [
        ("juliapkg", "polybench setup flux --add-package Mooncake"),
        ("/config", "polybench setup flux --julia {julia} --project {project} --add-package Mooncake"),
        (ENVIRONMENT, "{julia} --project={project} -e 'using Pkg; Pkg.add"),
    ],
)
@pytest.mark.parametrize("indirect", [(), ("Mooncake",)])
def test_missing_package_is_reported_with_a_command_to_add_it(
    indirect: tuple[str, ...], found_by: str, hint: str, executable: Make, project: Make
) -> None:
    packages = COMPLETE | dict.fromkeys(indirect, "0.5.45")
    julia = Julia(executable(), project(packages, indirect=indirect), found_by)
    with pytest.raises(EngineUnavailable, match="lacks Mooncake") as missing:
        check_packages(julia, ("Mooncake",))
    assert julia.project in missing.value.reason
    assert ("(it is only an indirect dependency)" in missing.value.reason) == bool(indirect)
    assert hint.format(julia=julia.executable, project=julia.project) in missing.value.hint


def test_only_requested_packages_are_checked(executable: Make, project: Make) -> None:
    julia = Julia(executable(), project(COMPLETE | {"Mooncake": "0.5.45", "Lux": "0.4.1"}), "juliapkg")
    check(julia)
    assert check_packages(julia, ("Mooncake",)) == {"mooncake": "0.5.45"}
    with pytest.raises(EngineUnavailable, match=r"unsupported versions: Lux 0\.4\.1 \(expected"):
        check_packages(julia, ("Lux",))


def test_reactant_needs_a_newer_flux(executable: Make, project: Make) -> None:
    packages = COMPLETE | {"Reactant": "0.2.280"}
    with pytest.raises(EngineUnavailable, match=r"has Flux 0\.16\.10.*0\.16\.11"):
        check_packages(Julia(executable(), project(packages), "juliapkg"), ("Reactant",))
    newer = Julia(executable(), project(packages | {"Flux": "0.16.11"}), "juliapkg")
    assert check_packages(newer, ("Reactant",)) == {"reactant": "0.2.280"}
