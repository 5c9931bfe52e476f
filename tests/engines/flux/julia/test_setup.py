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
from polybench.core.errors import Unavailable
from polybench.engines.flux.julia import installing, with_juliapkg
from polybench.engines.flux.julia.bounds import bounds
from polybench.engines.flux.julia.package import package_folder, sources_sha256
from polybench.engines.flux.julia.remembered import precompiled, recall, remember
from polybench.measuring import smoke
from tests.engines.flux.julia.conftest import COMPLETE, JULIACALL, Make


@pytest.fixture(autouse=True)
def smoke_test_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = SimpleNamespace(startup=SimpleNamespace(first_step_seconds=0.5), losses=[2.3, 2.2])
    monkeypatch.setattr(smoke, "smoke_test", lambda engine: prepared)
    for name in ("PYTHON_JULIACALL_EXE", "PYTHON_JULIACALL_PROJECT", "POLYBENCH_JULIA_FOUND_BY"):
        monkeypatch.setenv(name, "")  # setup sets them: forgotten with this test


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JULIA_PKG_SERVER", "http://127.0.0.1:9")


def setup(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["setup", "flux", *arguments])
    return result.exit_code, result.stderr


def test_a_given_julia_is_precompiled_tried_and_remembered(
    executable: Make, project: Make, tmp_path: Path
) -> None:
    julia, folder = executable(), project()
    code, said = setup("--julia", julia, "--project", folder)
    assert code == 0, said
    assert recall() == {"julia": julia, "project": folder}
    calls = (tmp_path / "calls").read_text()
    assert "using Pkg; Pkg.precompile()" in calls
    assert f'push!(LOAD_PATH, raw"{package_folder()}"); using PolyBench' in calls
    assert "Pkg.add" not in calls
    assert "Pkg.develop" not in calls
    assert precompiled() == {folder: sources_sha256()}
    assert "flux runs: its first step takes 0.5 s, losses 2.3000, 2.2000" in said


def test_missing_packages_are_added_with_pythoncall_in_juliacalls_version(
    executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "require_network", lambda: None)
    folder = project({"Flux": "0.16.9", "PythonCall": "0.9.20"}, developed=None)
    code, said = setup("--julia", executable(), "--project", folder)
    assert code == 4  # this Pkg.add did nothing
    assert "lacks JSON, PrecompileTools" in said
    calls = (tmp_path / "calls").read_text()
    developed, added = (
        calls.index(call) for call in (f'Pkg.develop(PackageSpec(path=raw"{package_folder()}"))', "Pkg.add")
    )
    assert developed < added  # what is added is held to PolyBench's bounds
    for name in ("Flux", "JSON", "PrecompileTools"):
        assert f'PackageSpec(name="{name}", version=Pkg.Types.semver_spec("{bounds()[name]}"))' in calls
    assert 'PackageSpec(name="NPZ")' in calls
    assert f'PackageSpec(name="PythonCall", version="{JULIACALL}")' in calls
    assert "CUDA" not in calls
    assert recall() is None


def test_cuda_is_added_when_it_is_asked_for(
    executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "require_network", lambda: None)
    code, said = setup("--julia", executable(), "--project", project(), "--cuda")
    assert code == 0, said
    calls = (tmp_path / "calls").read_text()
    assert (
        'Pkg.add([PackageSpec(name="CUDA", version=Pkg.Types.semver_spec("5")), PackageSpec(name="cuDNN"'
        in calls
    )


def test_what_only_another_package_brings_is_added(
    executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installing, "require_network", lambda: None)
    folder = project(COMPLETE | {"Mooncake": "0.5.45"}, indirect=("NPZ", "JSON", "Mooncake"))
    code, said = setup("--julia", executable(), "--project", folder, "--with", "Mooncake")
    assert code == 0, said
    (added,) = re.findall(r"Pkg\.add\(\[(.*)\]\)", (tmp_path / "calls").read_text())
    assert re.findall(r'name="(\w+)"', added) == ["NPZ", "Mooncake"]


def test_a_project_resolved_before_the_package_had_an_extension_is_resolved_again(
    executable: Make, project: Make, tmp_path: Path
) -> None:
    folder = project(since=("extensions", "PolyBenchLuxExt"))
    code, said = setup("--julia", executable(), "--project", folder)
    assert code == 0, said
    calls = (tmp_path / "calls").read_text()
    assert f'Pkg.develop(PackageSpec(path=raw"{package_folder()}"))' in calls
    assert "Pkg.add" not in calls
    assert f"resolving {folder} again, for what PolyBench has got since" in said
    assert "installing" not in said


def test_if_missing_resolves_it_again_too(executable: Make, project: Make, tmp_path: Path) -> None:
    remember(executable(), project(since=("deps", "SHA")))
    assert setup("--if-missing")[0] == 0
    assert "Pkg.develop" in (tmp_path / "calls").read_text()


def test_a_dry_run_says_that_it_would_be_resolved_again(executable: Make, project: Make) -> None:
    folder = project(since=("weakdeps", "Lux"))
    code, said = setup("--julia", executable(), "--project", folder, "--dry-run")
    assert code == 0
    assert f"would resolve {folder} again, for what PolyBench has got since" in said
    assert "would add" not in said
    assert "would install" not in said


def test_where_it_cannot_be_resolved_again_that_is_said(
    executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project(since=("extensions", "PolyBenchLuxExt"))
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    code, said = setup("--julia", executable(), "--project", folder)
    assert code == 0, said
    assert f"{folder} cannot be written: PolyBench is there as it was earlier, and it cannot be" in said
    assert "PolyBench stays outside" not in said
    assert "Pkg.develop" not in (tmp_path / "calls").read_text()


Juliapkg = Callable[[Callable[[], str]], list[bool]]


@pytest.fixture
def juliapkgs(executable: Make, monkeypatch: pytest.MonkeyPatch) -> Juliapkg:
    """Makes juliapkg's own project; the list has, for each time it resolved, whether it was made to."""

    def make(project: Callable[[], str]) -> list[bool]:
        forced: list[bool] = []

        def resolve(force: bool = False) -> None:
            forced.append(force)
            project()

        juliapkg_that(resolve, monkeypatch, executable())
        monkeypatch.setitem(pytest.importorskip("juliapkg.state").STATE, "project", project())
        return forced

    return make


@pytest.mark.parametrize(
    ("older", "would"),
    [
        ({"since": ("extensions", "PolyBenchLuxExt")}, "would resolve {} again"),
        ({"developed": None}, "would add PolyBench from"),
        ({"packages": {"Flux": "0.16.10"}}, "would install JSON"),
    ],
)
def test_juliapkg_is_made_to_resolve_what_it_would_skip(
    older: dict[str, Any], would: str, project: Make, juliapkgs: Juliapkg
) -> None:
    kinds = iter([older])  # complete once it is resolved
    forced = juliapkgs(lambda: project(**next(kinds, {})))
    folder = str(pytest.importorskip("juliapkg.state").STATE["project"])
    code, said = setup("--dry-run")
    assert (code, forced) == (0, [])
    assert would.format(folder) in said
    code, said = setup()
    assert code == 0, said
    assert forced == [True]
    code, said = setup("--dry-run")
    assert len(said.splitlines()) == 2  # which Julia, and that it would precompile
    assert setup()[0] == 0
    assert forced == [True]


def test_juliapkgs_project_that_cannot_be_written_is_used_as_it_is(
    project: Make,
    juliapkgs: Juliapkg,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forced = juliapkgs(lambda: project(since=("deps", "SHA")))
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    code, said = setup()
    assert code == 0, said
    assert "PolyBench is there as it was earlier, and it cannot be resolved again" in said
    assert forced == []


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    executable: Make, project: Make, tmp_path: Path
) -> None:
    folder = project({"Flux": "0.16.10"}, developed=None)
    code, said = setup("--julia", executable(), "--project", folder, "--dry-run")
    assert code == 0
    assert f"would install JSON, PythonCall, PrecompileTools, NPZ and what they need in {folder}" in said
    assert f"would add PolyBench from {package_folder()} to {folder}" in said
    assert "Pkg" not in (tmp_path / "calls").read_text()
    assert recall() is None


@pytest.mark.usefixtures("no_network")
def test_offline_asks_no_server(executable: Make, project: Make, tmp_path: Path) -> None:
    julia = executable(then=f'echo "offline $JULIA_PKG_OFFLINE" >> {tmp_path}/calls')
    assert setup("--julia", julia, "--project", project({"Flux": "0.16.10"}), "--offline")[0] == 4
    assert "offline true" in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("lacks", [True, False])
def test_a_project_that_cannot_be_written(
    lacks: bool, executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project({"Flux": "0.16.10"} if lacks else COMPLETE, developed=None)
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)  # root may write everywhere
    code, said = setup("--julia", executable(), "--project", folder)
    assert f"the Julia project {folder} cannot be written" in said
    assert "no network" not in said
    assert code == (4 if lacks else 0)


def test_what_only_the_plain_scripts_need_may_be_lacking_where_nothing_can_be_written(
    executable: Make, project: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = project({name: version for name, version in COMPLETE.items() if name != "NPZ"})
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    code, said = setup("--julia", executable(), "--project", folder)
    assert code == 0, said
    assert f"{folder} cannot be written, and lacks NPZ: the plain scripts do not run in it" in said
    assert "PolyBench stays outside" not in said
    assert "Pkg.add" not in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_a_julia_that_is_too_old_is_told_before_its_project_is_changed(
    more: tuple[str, ...], executable: Make, project: Make, tmp_path: Path
) -> None:
    code, said = setup("--julia", executable("julia version 1.9.4"), "--project", project({}), *more)
    assert code == 4
    assert "Julia 1.9.4 is none that polybench takes" in said
    assert "Pkg" not in (tmp_path / "calls").read_text()


@pytest.mark.parametrize("more", [(), ("--dry-run",)])
def test_without_juliacall_a_given_julia_is_of_no_use(
    more: tuple[str, ...], executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)

    def no_version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", no_version)
    code, said = setup("--julia", executable(), "--project", project({}), *more)
    assert (code, said.strip()) == (
        4,
        "flux is not set up: juliacall is not installed; mend it with: pip install 'polybench[flux]'",
    )


def test_what_setup_made_is_removed_and_the_rest_stays(
    executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state = pytest.importorskip("juliapkg.state").STATE
    theirs = tmp_path / "julia_env"
    monkeypatch.setitem(state, "project", str(theirs))
    monkeypatch.setitem(state, "project_is_shared", False)
    assert setup("--julia", executable(), "--project", project())[0] == 0
    theirs.mkdir()
    installing.own_project().mkdir(parents=True)
    said = setup("--remove", "--dry-run")[1]
    assert "would forget" in said
    assert recall()
    code, said = setup("--remove")
    assert code == 0
    assert recall() is None
    assert not theirs.exists()
    assert not installing.own_project().exists()
    assert Path(project()).exists()
    assert f"removed: {theirs}" in said


@pytest.mark.usefixtures("no_network")
def test_missing_packages_without_a_network_are_one_line(executable: Make, project: Make) -> None:
    code, said = setup("--julia", executable(), "--project", project({}))
    assert code == 4
    assert said.strip().splitlines()[-1].startswith("flux is not set up: no network: http://127.0.0.1:9")
    assert "Traceback" not in said


@pytest.mark.usefixtures("no_network")
def test_nothing_there_and_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("juliapkg")
    from juliapkg import deps

    monkeypatch.setattr(deps, "can_skip_resolve", lambda: False)
    code, said = setup("--if-missing")
    assert code == 4
    assert said.startswith("flux is not set up: no network")
    assert len(said.splitlines()) == 1


def test_where_all_is_there_if_missing_does_nothing(executable: Make, project: Make, tmp_path: Path) -> None:
    assert setup("--julia", executable(), "--project", project())[0] == 0
    (tmp_path / "calls").unlink()
    assert setup("--if-missing") == (0, "")
    assert not (tmp_path / "calls").exists() or "Pkg" not in (tmp_path / "calls").read_text()


def test_a_julia_that_is_not_there() -> None:
    code, said = setup("--julia", "/nowhere/julia")
    assert code == 4
    assert "there is no Julia at /nowhere/julia" in said


def test_packages_that_do_not_precompile(executable: Make, project: Make) -> None:
    code, said = setup("--julia", executable(then="exit 1"), "--project", project())
    assert code == 4
    assert "the packages could not be precompiled: Julia ended with code 1" in said


@pytest.mark.usefixtures("no_network")
def test_a_remembered_julia_that_is_gone_stays_without_a_network() -> None:
    remember("/gone/julia", "/gone")
    code, said = setup()
    assert code == 4
    assert said.startswith("flux is not set up: no network")
    assert recall() == {"julia": "/gone/julia", "project": "/gone"}  # as long as there is nothing better


def test_a_remembered_julia_that_is_gone_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = juliapkg_that(lambda force: None, monkeypatch)
    remember("/gone/julia", "/gone")
    assert installing.choose(None, None) is None
    assert with_juliapkg.set_up(print).executable == "/found/julia"
    assert recall() is None
    # juliapkg writes its project anew from what is listed: what is not would vanish.
    assert listed == {"PolyBench": {"dev": True, "path": str(package_folder())}}


def test_juliapkg_is_told_of_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = juliapkg_that(lambda force: None, monkeypatch)
    with_juliapkg.set_up(print, more=("CUDA", "cuDNN"))
    assert listed["CUDA"] == {"version": "5"}
    assert set(listed) == {"PolyBench", "CUDA", "cuDNN"}


def juliapkg_that(
    resolves: Callable[..., None], monkeypatch: pytest.MonkeyPatch, executable: str = "/found/julia"
) -> dict[str, dict[str, object]]:
    """What it is asked to add, of one that is on a network."""
    juliapkg = pytest.importorskip("juliapkg")
    from juliapkg import deps

    listed: dict[str, dict[str, object]] = {}
    monkeypatch.setattr(with_juliapkg, "require_network", lambda: None)
    monkeypatch.setattr(juliapkg, "add", lambda name, uuid, **more: listed.update({name: more}))
    monkeypatch.setattr(juliapkg, "resolve", resolves)
    monkeypatch.setattr(deps, "can_skip_resolve", lambda: {"executable": executable})
    return listed


def test_a_project_of_its_own_is_in_the_users_data(executable: Make, tmp_path: Path) -> None:
    julia = installing.choose(executable(), None)
    assert julia
    assert julia.project.endswith("polybench/julia-project")


def test_juliapkgs_errors_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(force: bool) -> None:
        raise ValueError("no Julia for this machine\nmore")

    juliapkg_that(fails, monkeypatch)
    with pytest.raises(Unavailable, match=r"its packages: no Julia for this machine$"):
        with_juliapkg.set_up(print)


def test_where_julia_fails_the_script_of_juliapkg_is_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(force: bool) -> None:
        raise subprocess.CalledProcessError(1, ["julia", "-e", "import Pkg\nPkg.add([...])"])

    juliapkg_that(fails, monkeypatch)
    with pytest.raises(Unavailable, match=r"its packages: Julia ended with code 1$"):
        with_juliapkg.set_up(print)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EROFS])
def test_a_folder_that_juliapkg_may_not_write_is_no_lack_of_a_network(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(force: bool) -> None:
        raise OSError(number, "Not allowed", "/venv/julia_env")

    juliapkg_that(fails, monkeypatch)
    with pytest.raises(Unavailable, match=r"^/venv/julia_env cannot be written \(Not allowed\)$") as caught:
        with_juliapkg.set_up(print)
    assert "network" not in caught.value.remedy
    assert "--project" in caught.value.remedy


def test_juliapkg_installs_nothing_offline() -> None:
    pytest.importorskip("juliapkg")
    with pytest.raises(Unavailable, match="installs nothing without a network"):
        with_juliapkg.set_up(print, offline=True)
