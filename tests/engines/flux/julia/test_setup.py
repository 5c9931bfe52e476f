"""`polybench setup flux`, with juliapkg and a Julia that is a shell script."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import threading
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.engines.flux.julia import setup as julia_setup
from polybench.engines.flux.julia.discovery import (
    LUX_PROGRAM_PACKAGES,
    Julia,
    bounds,
    configuration_file,
    package_folder,
    saved_julia,
)
from polybench.engines.flux.julia.environment import environment, environments_folder, own_environment
from polybench.errors import EngineUnavailable
from polybench.runner import doctor
from tests.engines.flux.julia.conftest import COMPLETE, Make
from tests.processes import becomes_true

pytest.importorskip("juliapkg")

FLUX_ONLY = {"Flux": "0.16.10"}
WITHOUT_NPZ = {name: version for name, version in COMPLETE.items() if name != "NPZ"}
OLD_PYTHONCALL = COMPLETE | {"PythonCall": "0.9.20"}


@pytest.fixture(autouse=True)
def smoke_test_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = SimpleNamespace(startup=SimpleNamespace(first_step_seconds=0.5), losses=[2.3, 2.2])
    monkeypatch.setattr(doctor, "smoke_test", lambda engine: prepared)
    monkeypatch.setenv("JULIA_PKG_SERVER", "")  # disables the check of the network
    for name in ("PYTHON_JULIACALL_EXE", "PYTHON_JULIACALL_PROJECT", "POLYBENCH_JULIA_FOUND_BY"):
        monkeypatch.setenv(name, "")  # setup sets them; monkeypatch restores them


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JULIA_PKG_SERVER", "http://127.0.0.1:9")


@pytest.fixture
def installing(executable: Make, project: Make, tmp_path: Path) -> Make:
    """Create a Julia whose Pkg.add results in a project with these packages."""

    def make(packages: dict[str, str] = COMPLETE, then: str = "exit 0") -> str:
        result = project(packages, folder="result")
        copy = (
            f'for option in "$@"; do case "$option" in --project=*) cp {result}/* "${{option#--project=}}";; esac; done'
        )
        return executable(then=f'case "$*" in *Pkg.add*) {copy} ;; esac\n{then}')

    return make


def setup(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["setup", "flux", *arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stderr


def files(folder: str | Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in Path(folder).rglob("*") if file.suffix in (".toml", ".json")}


def calls(tmp_path: Path) -> str:
    return (tmp_path / "calls").read_text()


def test_two_setups_at_once_run_one_after_the_other(executable: Make, project: Make) -> None:
    julia, lines, finished = Julia(executable(), project(), "a test"), [], []

    def set_up_too() -> None:
        with julia_setup.set_up(julia, lines.append):
            finished.append(True)

    other = threading.Thread(target=set_up_too)
    with julia_setup.set_up(julia, lambda line: None):
        other.start()
        assert becomes_true(lambda: lines)
        assert not finished
    other.join()
    assert lines[0] == "waiting for another `polybench setup flux`"
    assert finished


@pytest.mark.usefixtures("no_network")
def test_given_julia_is_tested_and_saved_without_a_network(executable: Make, project: Make, tmp_path: Path) -> None:
    julia, folder = executable(), project()
    before = files(folder)
    code, output = setup("--julia", julia, "--project", folder)
    assert code == 0, output
    saved = Julia(julia, folder, str(configuration_file()), "/lib/libjulia.so", "/bin")
    assert saved_julia() == saved
    own = own_environment(saved).project
    assert f"--project={own} --startup-file=no -e using Pkg; Pkg.precompile(); using PolyBench" in calls(tmp_path)
    assert "Pkg.add" not in calls(tmp_path)
    assert files(folder) == before
    assert "flux runs: first step 0.5 s, losses 2.3000, 2.2000" in output


def test_the_depot_is_saved_and_found_again(
    executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    julia, depot = executable(then=f'echo "depot $JULIA_DEPOT_PATH" >> {tmp_path}/calls'), f"{tmp_path}/depot:"
    monkeypatch.setenv("JULIA_DEPOT_PATH", depot)
    assert setup("--julia", julia, "--project", project())[0] == 0
    for name in ("JULIA_DEPOT_PATH", "PYTHON_JULIACALL_EXE", "PYTHON_JULIACALL_PROJECT"):  # as in a new shell
        monkeypatch.delenv(name)
    saved = saved_julia()
    assert saved is not None
    assert saved.variables == {"JULIA_DEPOT_PATH": depot}
    assert environment("cpu", 2, ())["JULIA_DEPOT_PATH"] == depot
    (tmp_path / "calls").unlink()
    assert setup()[0] == 0  # precompiles with the saved one
    assert f"depot {depot}" in calls(tmp_path)
    assert saved_julia() == saved
    monkeypatch.setenv("JULIA_DEPOT_PATH", "/another")
    assert saved.variables == {}
    assert "JULIA_DEPOT_PATH" not in environment("cpu", 2, ())


def test_a_package_that_no_registry_has_is_named(executable: Make, project: Make) -> None:
    then = 'case "$*" in *Pkg.add*) exit 1 ;; *reachable_registries*) case "$*" in *Lux*) echo Lux ;; esac ;; esac'
    folder = project()
    code, output = setup("--julia", executable(then=then), "--project", folder, "--add-package", "Lux")
    assert code == 4
    last = output.strip().splitlines()[-1]
    assert last.startswith("flux is not set up: no package registry of this Julia has Lux; fix it with: add a registry")
    assert f"Pkg.develop, then: polybench setup flux --julia {executable()} --project {folder}" in last


def test_setup_ends_with_what_an_added_package_is_for(
    executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested = []
    prepared = SimpleNamespace(startup=SimpleNamespace(first_step_seconds=0.5), losses=[2.3, 2.2])
    monkeypatch.setattr(doctor, "smoke_test", lambda name: tested.append(name) or prepared)
    packages = COMPLETE | dict.fromkeys(LUX_PROGRAM_PACKAGES, "1.31.4") | {"Mooncake": "0.5.45"}
    more = ("--add-package", "Lux", "--add-package", "Mooncake")
    code, output = setup("--julia", executable(), "--project", project(packages), *more)
    assert code == 0, output
    assert tested == ["flux", "lux", "flux+mooncake"]
    assert "Lux is for: " in output
    assert "polybench compare --engines lux,flux" in output
    assert (
        "Mooncake is for: gradients by Mooncake.jl (`AutoMooncake()`); polybench compare --engines flux,flux+mooncake"
        in output
    )


@pytest.mark.parametrize("packages", [{}, FLUX_ONLY, OLD_PYTHONCALL])
def test_juliapkg_adds_missing_packages_to_the_given_project(
    packages: dict[str, str], installing: Make, project: Make, tmp_path: Path
) -> None:
    julia, folder = installing(), project(packages)
    code, output = setup("--julia", julia, "--project", folder)
    assert code == 0, output
    (added,) = (line for line in calls(tmp_path).split("--project=") if "Pkg.add" in line)
    assert added.startswith(f"{folder} ")
    for name in COMPLETE:
        assert f'name="{name}"' in added
    assert "PolyBench" not in added
    saved = saved_julia()
    assert saved is not None
    assert (saved.executable, saved.project) == (julia, folder)


def test_juliapkg_gets_the_version_bounds(executable: Make, project: Make, tmp_path: Path) -> None:
    copy = f'cp "${{1#--project=}}/Project.toml" {tmp_path}/seen.toml'
    julia = executable(then=f'case "$*" in *Pkg.add*) {copy} ;; esac')
    assert setup("--julia", julia, "--project", project({}), "--cuda", "--add-package", "Lux")[0] == 4
    compat = tomllib.loads((tmp_path / "seen.toml").read_text())["compat"]
    assert {*LUX_PROGRAM_PACKAGES} <= set(tomllib.loads((tmp_path / "seen.toml").read_text())["deps"])
    for name in ("Flux", "JSON", "CUDA", "cuDNN", "Lux"):
        assert compat[name].replace("^", "") == bounds()[name], name
    assert compat["PythonCall"] == "=0.9.34"


def test_indirect_packages_are_added_and_stay_when_juliapkg_resolves_again(installing: Make, project: Make) -> None:
    packages = COMPLETE | {"Mooncake": "0.5.45"}
    folder = project(packages, indirect=("NPZ", "JSON", "Mooncake"))
    code, output = setup("--julia", installing(packages), "--project", folder, "--add-package", "Mooncake")
    assert code == 0, output
    assert "installing NPZ, Mooncake with dependencies" in output
    listed = json.loads(Path(folder, "pyjuliapkg", "juliapkg.json").read_text())["packages"]
    assert listed == {"Mooncake": {"uuid": "da2b9cff-9c12-43a0-ae48-6db2b0edb7d6", "version": bounds()["Mooncake"]}}


@pytest.mark.parametrize(
    ("failing", "reason"),
    [
        ("Pkg.add", "juliapkg could not install Julia or its packages: Julia ended with code 1"),
        ("Pkg.precompile(); using", "the packages could not be precompiled: Julia ended with code 1"),
        ("nothing", "lacks Mooncake"),
        (EngineUnavailable("the worker crashed", "none"), "the worker crashed"),
        (KeyboardInterrupt("Ctrl-C"), "training two steps of flux"),
    ],
)
def test_failed_addition_leaves_the_project_as_it_was(
    failing: str | BaseException, reason: str, installing: Make, project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def test(engine: str) -> None:
        assert isinstance(failing, BaseException)
        assert files(folder) != before
        raise failing

    folder = project(polybench=Path("/other"))
    before = files(folder)
    monkeypatch.setattr(doctor, "smoke_test", test)
    packages = COMPLETE | ({} if failing == "nothing" else {"Mooncake": "0.5.45"})
    julia = installing(packages, then=f'case "$*" in *"{failing!s}"?*) exit 1 ;; esac')
    code, output = setup("--julia", julia, "--project", folder, "--add-package", "Mooncake")
    assert code == (130 if isinstance(failing, KeyboardInterrupt) else 4)
    assert reason in output
    assert files(folder) == before
    assert saved_julia() is None


def test_failure_writes_no_unchanged_file(executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    julia, folder = executable(then="exit 1"), project()
    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "write_bytes", lambda file, content: pytest.fail(f"wrote {file}"))
        code, output = setup("--julia", julia, "--project", folder)
    assert code == 4
    assert "the packages could not be precompiled" in output


def test_dry_run_reports_steps_and_changes_nothing(executable: Make, project: Make, tmp_path: Path) -> None:
    folder = project(FLUX_ONLY)
    before = files(folder)
    code, output = setup("--julia", executable(), "--project", folder, "--dry-run")
    assert code == 0
    assert f"would install JSON, PythonCall, PrecompileTools, NPZ with dependencies in {folder}" in output
    for file in (f"{folder}/Project.toml", f"{folder}/Manifest.toml", environments_folder(), configuration_file()):
        assert str(file) in output.splitlines()[-1]
    assert "Pkg" not in calls(tmp_path)
    assert (files(folder), saved_julia()) == (before, None)


@pytest.mark.usefixtures("no_network")
def test_missing_packages_without_a_network_suggest_offline(executable: Make, project: Make) -> None:
    julia, folder = executable(), project({})
    code, output = setup("--julia", julia, "--project", folder)
    assert code == 4
    last = output.strip().splitlines()[-1]
    assert last.startswith("flux is not set up: no network: http://127.0.0.1:9 cannot be reached")
    assert last.endswith(f"on this machine: polybench setup flux --julia {julia} --project {folder} --offline")


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("variable", [True, False])
def test_offline_adds_packages_without_a_server(
    variable: bool, installing: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if variable:
        monkeypatch.setenv("PYTHON_JULIAPKG_OFFLINE", "yes")
    julia = installing(then=f'echo "offline $JULIA_PKG_OFFLINE $JULIA_PKG_SERVER." >> {tmp_path}/calls')
    code, output = setup("--julia", julia, "--project", project(FLUX_ONLY), *([] if variable else ["--offline"]))
    assert code == 0, output
    assert "offline true ." in calls(tmp_path)


@pytest.mark.parametrize("packages", [FLUX_ONLY, COMPLETE, WITHOUT_NPZ])
def test_unwritable_project_is_used_unless_it_lacks_packages(
    packages: dict[str, str], executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(packages)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # root can write everywhere
    code, output = setup("--julia", executable(), "--project", folder)
    assert code == (4 if packages is FLUX_ONLY else 0), output
    assert (f"the Julia project {folder} is not writable, and lacks" in output) == (packages != COMPLETE)
    assert "Pkg.add" not in calls(tmp_path)


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_unusable_julia_is_rejected_before_its_project_changes(
    more: tuple[str, ...], executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "Julia not found at /nowhere/julia" in setup("--julia", "/nowhere/julia", *more)[1]
    given = ("--julia", executable("julia version 1.9.4"), "--project", project({}), *more)
    before = files(project({}))
    code, output = setup(*given)
    assert code == 4
    assert "Julia 1.9.4 is not supported" in output
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    problem = "juliacall is not installed; fix it with: pip install 'polybench-dl[flux]'"
    assert setup(*given) == (4, f"flux is not set up: {problem}\n")
    assert files(project({})) == before


def test_other_packages_are_rejected() -> None:
    result = CliRunner().invoke(app, ["setup", "flux", "--add-package", "DataFrames"])
    assert "--add-package DataFrames: no engine uses it" in str(result.exception)


@pytest.mark.parametrize("saved", [True, False])
def test_juliapkg_finds_julia_and_replaces_a_saved_one_that_is_gone(
    saved: bool, installing: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if saved:
        configuration_file().parent.mkdir(parents=True)
        configuration_file().write_text('[flux]\njulia = "/gone/julia"\nproject = "/gone"\n')
    monkeypatch.setenv("PYTHON_JULIAPKG_EXE", installing())
    code, output = setup()
    assert code == 0, output
    assert f"project {tmp_path}/juliapkg, from juliapkg" in output
    assert saved_julia() is None
    assert setup("--if-missing") == (0, "")
    assert len(setup("--dry-run")[1].splitlines()) == 3  # the Julia, the precompilation, and the files


@pytest.mark.usefixtures("no_network")
def test_missing_saved_julia_stays_saved_without_a_network() -> None:
    configuration_file().parent.mkdir(parents=True)
    configuration_file().write_text('[flux]\njulia = "/gone/julia"\nproject = "/gone"\n')
    code, output = setup("--if-missing")
    assert code == 4
    assert output.startswith("flux is not set up: no network")
    assert len(output.splitlines()) == 1
    assert saved_julia() is not None  # until setup finds another one


def test_juliapkg_downloads_no_julia_offline() -> None:
    code, output = setup("--offline")
    assert code == 4
    assert "cannot install Julia without a network" in output
    assert "--offline" in output.partition("fix it with")[2]


def test_if_missing_does_nothing_if_complete(executable: Make, project: Make, tmp_path: Path) -> None:
    assert setup("--julia", executable(), "--project", project())[0] == 0
    (tmp_path / "calls").unlink()
    assert setup("--if-missing") == (0, "")
    assert not (tmp_path / "calls").exists() or "Pkg" not in calls(tmp_path)
    assert setup("--if-missing", "--add-package", "Lux")[0] == 4


def test_errors_of_juliapkg_are_reported(executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    import juliapkg

    def fails(force: bool) -> None:
        raise ValueError("no Julia for this machine\nmore")

    monkeypatch.setattr(juliapkg, "resolve", fails)
    code, output = setup("--julia", executable(), "--project", project({}))
    assert code == 4
    assert "its packages: no Julia for this machine; fix it with" in output


@pytest.mark.parametrize("shared", [True, False])
def test_remove_package_deletes_only_what_setup_created(
    shared: bool, executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from juliapkg.state import STATE

    assert setup("--julia", executable(), "--project", project())[0] == 0
    monkeypatch.setitem(STATE, "project_is_shared", shared)
    without_project = julia_setup.choose(executable(), None)
    assert without_project
    created = [Path(without_project.project), environments_folder()]
    for folder in (*created, tmp_path / "juliapkg"):
        folder.mkdir(parents=True, exist_ok=True)
    output = setup("--remove-package", "--dry-run")[1]
    assert "would have removed the Julia of" in output
    assert saved_julia()
    assert all(folder.exists() for folder in created)
    code, output = setup("--remove-package")
    assert code == 0
    assert saved_julia() is None
    assert not any(folder.exists() for folder in created)
    assert (tmp_path / "juliapkg").exists() == shared
    assert Path(project()).exists()


def test_two_checkouts_share_a_project(
    executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from polybench.engines.flux.julia import discovery

    folder = project()
    before = files(folder)
    for name in ("one", "two"):
        shutil.copytree(package_folder(), tmp_path / name, ignore=shutil.ignore_patterns("src", "test"))
    own = {}
    for name in ("one", "two"):
        with monkeypatch.context() as checkout:
            checkout.setattr(discovery, "package_folder", lambda name=name: tmp_path / name)
            code, output = setup("--julia", executable(), "--project", folder)
            assert code == 0, output
            julia = saved_julia()
            assert julia
            own[name] = own_environment(julia)
    for name, julia in own.items():
        assert discovery.manifest(julia)["PolyBench"]["path"] == str(tmp_path / name)
    assert own["one"].project != own["two"].project
    assert files(folder) == before
