"""`polybench setup flux`, with a Julia that is a shell script."""

from __future__ import annotations

import errno
import importlib.metadata
import importlib.util
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from polybench.cli import app
from polybench.engines.flux.julia import installation, juliapkg_setup, saved_config
from polybench.engines.flux.julia.package import package_folder, sources_sha256
from polybench.engines.flux.julia.version_bounds import bounds
from polybench.errors import EngineUnavailable
from polybench.runner import doctor
from tests.engines.flux.julia.conftest import COMPLETE, JULIACALL, Make


@pytest.fixture(autouse=True)
def smoke_test_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = SimpleNamespace(startup=SimpleNamespace(first_step_seconds=0.5), losses=[2.3, 2.2])
    monkeypatch.setattr(doctor, "smoke_test", lambda engine: prepared)
    for name in ("PYTHON_JULIACALL_EXE", "PYTHON_JULIACALL_PROJECT", "POLYBENCH_JULIA_FOUND_BY"):
        monkeypatch.setenv(name, "")  # setup sets them; monkeypatch restores them


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JULIA_PKG_SERVER", "http://127.0.0.1:9")


def setup(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["setup", "flux", *arguments])
    return result.exit_code, result.stderr


def test_given_julia_is_precompiled_tested_and_saved(executable: Make, project: Make, tmp_path: Path) -> None:
    julia, folder = executable(), project()
    code, output = setup("--julia", julia, "--project", folder)
    assert code == 0, output
    assert saved_config.load() == {"julia": julia, "project": folder}
    calls = (tmp_path / "calls").read_text()
    assert "using Pkg; Pkg.precompile()" in calls
    assert f'push!(LOAD_PATH, raw"{package_folder()}"); using PolyBench' in calls
    assert "Pkg.add" not in calls
    assert "Pkg.develop" not in calls
    assert saved_config.precompiled() == {folder: sources_sha256()}
    assert "flux runs: first step 0.5 s, losses 2.3000, 2.2000" in output


def test_missing_packages_are_added_with_the_matching_pythoncall(
    executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "require_network", lambda: None)
    folder = project({"Flux": "0.16.9", "PythonCall": "0.9.20"}, developed=None)
    code, output = setup("--julia", executable(), "--project", folder)
    assert code == 4  # the fake Pkg.add does nothing
    assert "lacks JSON, PrecompileTools" in output
    calls = (tmp_path / "calls").read_text()
    developed, added = (
        calls.index(call) for call in (f'Pkg.develop(PackageSpec(path=raw"{package_folder()}"))', "Pkg.add")
    )
    assert developed < added  # so that Pkg enforces PolyBench's bounds
    for name in ("Flux", "JSON", "PrecompileTools"):
        assert f'PackageSpec(name="{name}", version=Pkg.Types.semver_spec("{bounds()[name]}"))' in calls
    assert 'PackageSpec(name="NPZ")' in calls
    assert f'PackageSpec(name="PythonCall", version="{JULIACALL}")' in calls
    assert "CUDA" not in calls
    assert saved_config.load() is None


def test_cuda_is_added_on_request(
    executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "require_network", lambda: None)
    code, output = setup("--julia", executable(), "--project", project(), "--cuda")
    assert code == 0, output
    calls = (tmp_path / "calls").read_text()
    assert 'Pkg.add([PackageSpec(name="CUDA", version=Pkg.Types.semver_spec("5")), PackageSpec(name="cuDNN"' in calls


def test_indirect_packages_are_added(
    executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "require_network", lambda: None)
    folder = project(COMPLETE | {"Mooncake": "0.5.45"}, indirect=("NPZ", "JSON", "Mooncake"))
    code, output = setup("--julia", executable(), "--project", folder, "--add-package", "Mooncake")
    assert code == 0, output
    (added,) = re.findall(r"Pkg\.add\(\[(.*)\]\)", (tmp_path / "calls").read_text())
    assert re.findall(r'name="(\w+)"', added) == ["NPZ", "Mooncake"]


def test_outdated_project_is_resolved_again(executable: Make, project: Make, tmp_path: Path) -> None:
    folder = project(since=("extensions", "PolyBenchLuxExt"))
    code, output = setup("--julia", executable(), "--project", folder)
    assert code == 0, output
    calls = (tmp_path / "calls").read_text()
    assert f'Pkg.develop(PackageSpec(path=raw"{package_folder()}"))' in calls
    assert "Pkg.add" not in calls
    assert f"resolving {folder} again, because PolyBench has changed" in output
    assert "installing" not in output


def test_if_missing_resolves_an_outdated_project(executable: Make, project: Make, tmp_path: Path) -> None:
    saved_config.save(executable(), project(since=("deps", "SHA")))
    assert setup("--if-missing")[0] == 0
    assert "Pkg.develop" in (tmp_path / "calls").read_text()


def test_dry_run_reports_an_outdated_project(executable: Make, project: Make) -> None:
    folder = project(since=("weakdeps", "Lux"))
    code, output = setup("--julia", executable(), "--project", folder, "--dry-run")
    assert code == 0
    assert f"would resolve {folder} again, because PolyBench has changed" in output
    assert "would add" not in output
    assert "would install" not in output


def test_unwritable_outdated_project_is_reported(
    executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(since=("extensions", "PolyBenchLuxExt"))
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    code, output = setup("--julia", executable(), "--project", folder)
    assert code == 0, output
    assert f"{folder} is not writable: it has an older PolyBench and cannot be resolved again" in output
    assert "PolyBench is loaded from outside" not in output
    assert "Pkg.develop" not in (tmp_path / "calls").read_text()


Juliapkg = Callable[[Callable[[], str]], list[bool]]


@pytest.fixture
def juliapkgs(executable: Make, monkeypatch: pytest.MonkeyPatch) -> Juliapkg:
    """Create juliapkg's project; the list contains the argument `force` of each resolve."""

    def make(project: Callable[[], str]) -> list[bool]:
        forced: list[bool] = []

        def resolve(force: bool = False) -> None:
            forced.append(force)
            project()

        fake_juliapkg(resolve, monkeypatch, executable())
        monkeypatch.setitem(pytest.importorskip("juliapkg.state").STATE, "project", project())
        return forced

    return make


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"since": ("extensions", "PolyBenchLuxExt")}, "would resolve {} again"),
        ({"developed": None}, "would add PolyBench from"),
        ({"packages": {"Flux": "0.16.10"}}, "would install JSON"),
    ],
)
def test_juliapkg_is_forced_to_resolve_an_incomplete_project(
    state: dict[str, Any], expected: str, project: Make, juliapkgs: Juliapkg
) -> None:
    states = iter([state])  # complete after the first resolve
    forced = juliapkgs(lambda: project(**next(states, {})))
    folder = str(pytest.importorskip("juliapkg.state").STATE["project"])
    code, output = setup("--dry-run")
    assert (code, forced) == (0, [])
    assert expected.format(folder) in output
    code, output = setup()
    assert code == 0, output
    assert forced == [True]
    code, output = setup("--dry-run")
    assert len(output.splitlines()) == 2  # the Julia, and the precompilation
    assert setup()[0] == 0
    assert forced == [True]


def test_unwritable_project_of_juliapkg_is_used_unchanged(
    project: Make,
    juliapkgs: Juliapkg,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forced = juliapkgs(lambda: project(since=("deps", "SHA")))
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    code, output = setup()
    assert code == 0, output
    assert "it has an older PolyBench and cannot be resolved again" in output
    assert forced == []


def test_dry_run_reports_steps_and_changes_nothing(executable: Make, project: Make, tmp_path: Path) -> None:
    folder = project({"Flux": "0.16.10"}, developed=None)
    code, output = setup("--julia", executable(), "--project", folder, "--dry-run")
    assert code == 0
    assert f"would install JSON, PythonCall, PrecompileTools, NPZ with dependencies in {folder}" in output
    assert f"would add PolyBench from {package_folder()} to {folder}" in output
    assert "Pkg" not in (tmp_path / "calls").read_text()
    assert saved_config.load() is None


@pytest.mark.usefixtures("no_network")
def test_offline_contacts_no_server(executable: Make, project: Make, tmp_path: Path) -> None:
    julia = executable(then=f'echo "offline $JULIA_PKG_OFFLINE" >> {tmp_path}/calls')
    assert setup("--julia", julia, "--project", project({"Flux": "0.16.10"}), "--offline")[0] == 4
    assert "offline true" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("lacks", [True, False])
def test_unwritable_project_is_reported(
    lacks: bool, executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project({"Flux": "0.16.10"} if lacks else COMPLETE, developed=None)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # root can write everywhere
    code, output = setup("--julia", executable(), "--project", folder)
    assert f"the Julia project {folder} is not writable" in output
    assert "no network" not in output
    assert code == (4 if lacks else 0)


def test_unwritable_project_may_lack_packages_of_plain_scripts(
    executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project({name: version for name, version in COMPLETE.items() if name != "NPZ"})
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    code, output = setup("--julia", executable(), "--project", folder)
    assert code == 0, output
    assert f"{folder} is not writable, and lacks NPZ: flux runs, but the plain programs do not" in output
    assert "PolyBench is loaded from outside" not in output
    assert "Pkg.add" not in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_unsupported_julia_is_rejected_before_its_project_changes(
    more: tuple[str, ...], executable: Make, project: Make, tmp_path: Path
) -> None:
    code, output = setup("--julia", executable("julia version 1.9.4"), "--project", project({}), *more)
    assert code == 4
    assert "Julia 1.9.4 is not supported" in output
    assert "Pkg" not in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_given_julia_needs_juliacall(
    more: tuple[str, ...], executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    def no_version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", no_version)
    code, output = setup("--julia", executable(), "--project", project({}), *more)
    assert (code, output.strip()) == (
        4,
        "flux is not set up: juliacall is not installed; fix it with: pip install 'polybench-dl[flux]'",
    )


def test_remove_package_deletes_only_projects_of_setup(
    executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state = pytest.importorskip("juliapkg.state").STATE
    juliapkg_project = tmp_path / "julia_env"
    monkeypatch.setitem(state, "project", str(juliapkg_project))
    monkeypatch.setitem(state, "project_is_shared", False)
    assert setup("--julia", executable(), "--project", project())[0] == 0
    juliapkg_project.mkdir()
    installation.own_project().mkdir(parents=True)
    output = setup("--remove-package", "--dry-run")[1]
    assert "would remove the Julia of" in output
    assert saved_config.load()
    code, output = setup("--remove-package")
    assert code == 0
    assert saved_config.load() is None
    assert not juliapkg_project.exists()
    assert not installation.own_project().exists()
    assert Path(project()).exists()
    assert f"removed {juliapkg_project}" in output


@pytest.mark.usefixtures("no_network")
def test_missing_packages_without_a_network_are_a_single_line(executable: Make, project: Make) -> None:
    code, output = setup("--julia", executable(), "--project", project({}))
    assert code == 4
    assert output.strip().splitlines()[-1].startswith("flux is not set up: no network: http://127.0.0.1:9")
    assert "Traceback" not in output


@pytest.mark.usefixtures("no_network")
def test_no_julia_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("juliapkg")
    from juliapkg import deps

    monkeypatch.setattr(deps, "can_skip_resolve", lambda: False)
    code, output = setup("--if-missing")
    assert code == 4
    assert output.startswith("flux is not set up: no network")
    assert len(output.splitlines()) == 1


def test_if_missing_does_nothing_if_complete(executable: Make, project: Make, tmp_path: Path) -> None:
    assert setup("--julia", executable(), "--project", project())[0] == 0
    (tmp_path / "calls").unlink()
    assert setup("--if-missing") == (0, "")
    assert not (tmp_path / "calls").exists() or "Pkg" not in (tmp_path / "calls").read_text()


def test_setup_reports_a_missing_julia() -> None:
    code, output = setup("--julia", "/nowhere/julia")
    assert code == 4
    assert "Julia not found at /nowhere/julia" in output


def test_failed_precompilation_is_reported(executable: Make, project: Make) -> None:
    code, output = setup("--julia", executable(then="exit 1"), "--project", project())
    assert code == 4
    assert "the packages could not be precompiled: Julia ended with code 1" in output


@pytest.mark.usefixtures("no_network")
def test_missing_saved_julia_stays_saved_without_a_network() -> None:
    saved_config.save("/gone/julia", "/gone")
    code, output = setup()
    assert code == 4
    assert output.startswith("flux is not set up: no network")
    assert saved_config.load() == {"julia": "/gone/julia", "project": "/gone"}  # until setup finds another one


def test_missing_saved_julia_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = fake_juliapkg(lambda force: None, monkeypatch)
    saved_config.save("/gone/julia", "/gone")
    assert installation.choose(None, None) is None
    assert juliapkg_setup.set_up(print).executable == "/found/julia"
    assert saved_config.load() is None
    # juliapkg rewrites its project from this list, and would remove other packages.
    assert listed == {"PolyBench": {"dev": True, "path": str(package_folder())}}


def test_juliapkg_gets_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = fake_juliapkg(lambda force: None, monkeypatch)
    juliapkg_setup.set_up(print, more=("CUDA", "cuDNN"))
    assert listed["CUDA"] == {"version": "5"}
    assert set(listed) == {"PolyBench", "CUDA", "cuDNN"}


def fake_juliapkg(
    resolves: Callable[..., None], monkeypatch: pytest.MonkeyPatch, executable: str = "/found/julia"
) -> dict[str, dict[str, object]]:
    """Replace juliapkg with a fake on a network, and return the packages that setup adds."""
    juliapkg = pytest.importorskip("juliapkg")
    from juliapkg import deps

    listed: dict[str, dict[str, object]] = {}
    monkeypatch.setattr(juliapkg_setup, "require_network", lambda: None)
    monkeypatch.setattr(juliapkg, "add", lambda name, uuid, **more: listed.update({name: more}))
    monkeypatch.setattr(juliapkg, "resolve", resolves)
    monkeypatch.setattr(deps, "can_skip_resolve", lambda: {"executable": executable})
    return listed


def test_own_project_is_in_the_user_data_folder(executable: Make, tmp_path: Path) -> None:
    julia = installation.choose(executable(), None)
    assert julia
    assert julia.project.endswith("polybench/julia-project")


def test_errors_of_juliapkg_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(force: bool) -> None:
        raise ValueError("no Julia for this machine\nmore")

    fake_juliapkg(fails, monkeypatch)
    with pytest.raises(EngineUnavailable, match=r"its packages: no Julia for this machine$"):
        juliapkg_setup.set_up(print)


def test_error_omits_the_script_of_juliapkg(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(force: bool) -> None:
        raise subprocess.CalledProcessError(1, ["julia", "-e", "import Pkg\nPkg.add([...])"])

    fake_juliapkg(fails, monkeypatch)
    with pytest.raises(EngineUnavailable, match=r"its packages: Julia ended with code 1$"):
        juliapkg_setup.set_up(print)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_unwritable_folder_of_juliapkg_is_not_a_network_error(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(force: bool) -> None:
        raise OSError(number, "Not allowed", "/venv/julia_env")

    fake_juliapkg(fails, monkeypatch)
    with pytest.raises(EngineUnavailable, match=r"^/venv/julia_env is not writable \(Not allowed\)$") as caught:
        juliapkg_setup.set_up(print)
    assert "network" not in caught.value.hint
    assert "--project" in caught.value.hint


def test_juliapkg_installs_nothing_offline() -> None:
    pytest.importorskip("juliapkg")
    with pytest.raises(EngineUnavailable, match="cannot install without a network"):
        juliapkg_setup.set_up(print, offline=True)
