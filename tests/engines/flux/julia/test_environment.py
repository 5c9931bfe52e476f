"""The variables of a Julia worker, and the project with this checkout's PolyBench."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from polybench.engines import ENGINES
from polybench.engines.flux.julia.discovery import (
    EXECUTABLE,
    FOUND_BY,
    NAME,
    PROJECT,
    Julia,
    check,
    installed,
    package_folder,
    save_julia,
)
from polybench.engines.flux.julia.environment import (
    REQUESTED_PACKAGES,
    environment,
    own_environment,
    requested_packages,
    threads,
)
from polybench.engines.flux.lux import engine as lux
from polybench.errors import EngineUnavailable
from polybench.protocol.environment import worker_environment
from tests.engines.flux.julia.conftest import COMPLETE, Make

SAVED = Julia("/saved/julia", "/saved", "a test")


def test_worker_gets_the_variables_of_juliacall() -> None:
    save_julia(SAVED)
    found = worker_environment(ENGINES["flux"], "cpu", 3)
    assert (found[EXECUTABLE], found[PROJECT]) == ("/saved/julia", "/saved")
    assert found["PYTHON_JULIACALL_HANDLE_SIGNALS"] == "yes"
    assert not [name for name in worker_environment(ENGINES["torch"], "cpu", 3) if "JULIACALL" in name]
    other = worker_environment(ENGINES["flux"], "cpu", 3, project="/dev")
    assert (other[EXECUTABLE], other[PROJECT], other[FOUND_BY]) == ("/saved/julia", "/dev", "--env")
    assert {name for name in found if found[name] != other[name]} == {PROJECT, FOUND_BY}


@pytest.mark.parametrize(
    ("study", "variants", "julia", "blas"),
    [
        (1, (), "1", "1"),
        (8, (), "8", "1"),  # only one pool has several threads by default
        (8, ("framework_threads",), "1", "8"),
        (2, ("blas2",), "2", "2"),
        (4, ("blas1", "framework_threads"), "1", "1"),
        (4, ("all_cores",), "4", "4"),
    ],
)
def test_variants_set_the_thread_pools(study: int, variants: tuple[str, ...], julia: str, blas: str) -> None:
    save_julia(SAVED)
    found = worker_environment(ENGINES["flux"], "cpu", study, variants)
    assert found["PYTHON_JULIACALL_THREADS"] == found["JULIA_NUM_THREADS"] == julia
    assert found["OPENBLAS_NUM_THREADS"] == blas


@pytest.mark.parametrize("variants", [("blas1", "blas2"), ("all_cores", "blas2")])
def test_two_variants_that_set_the_blas_threads_are_rejected(variants: tuple[str, ...]) -> None:
    with pytest.raises(EngineUnavailable, match=rf"{variants[0]}\+blas2 sets the BLAS threads more than once"):
        threads(2, variants)


@pytest.mark.parametrize(("version", "threads"), [("1.10.8", "3"), ("1.11.6", "3"), ("1.12.0", "3,0")])
def test_julia_has_no_interactive_thread(version: str, threads: str, executable: Make) -> None:
    save_julia(Julia(executable(f"julia version {version}"), f"/of {version}", "a test"))
    found = worker_environment(ENGINES["flux"], "cpu", 3)
    assert found["JULIA_NUM_THREADS"] == found["PYTHON_JULIACALL_THREADS"] == threads
    assert found["OPENBLAS_NUM_THREADS"] == "1"


def test_worker_gets_the_path_of_libjulia_if_it_exists(executable: Make, tmp_path: Path) -> None:
    library = tmp_path / "libjulia.so"
    library.touch()
    save_julia(Julia(executable(), "/a", "a test", str(library), str(tmp_path)))
    found = worker_environment(ENGINES["flux"], "cpu", 3)
    assert found["PYTHON_JULIACALL_LIB"] == str(library)
    assert found["PYTHON_JULIACALL_BINDIR"] == str(tmp_path)
    library.unlink()
    assert not {"PYTHON_JULIACALL_LIB", "PYTHON_JULIACALL_BINDIR"} & set(worker_environment(ENGINES["flux"], "cpu", 3))


def test_without_julia_the_worker_reports_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXECUTABLE, "/only/this")
    assert environment("cpu", 2, ()) == {}


def test_worker_gets_the_packages_of_its_variants(
    executable: Make, project: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(EXECUTABLE, executable())
    monkeypatch.setenv(PROJECT, project(COMPLETE))
    assert REQUESTED_PACKAGES not in environment("cpu", 2, ())
    assert REQUESTED_PACKAGES not in environment("cpu", 2, ("train", "blas2"))
    assert environment("cpu", 2, ("mooncake", "mkl"))[REQUESTED_PACKAGES] == "Mooncake,MKL"
    assert lux.environment("cpu", 2, ())[REQUESTED_PACKAGES] == "Lux"
    monkeypatch.setenv(REQUESTED_PACKAGES, "Mooncake,MKL")
    assert requested_packages() == ("Mooncake", "MKL")


@pytest.mark.parametrize("polybench", [None, Path("/other/julia")])
def test_own_environment_has_this_package_and_all_others(
    polybench: Path | None, executable: Make, project: Make, tmp_path: Path
) -> None:
    julia = Julia(executable(), project(polybench=polybench, indirect=("JSON",)), "a test")
    manifest = Path(julia.project, "Manifest.toml")
    manifest.write_text(manifest.read_text() + '\n[[deps.Mine]]\npath = "../mine"\nuuid = "1"\n')
    Path(julia.project, "LocalPreferences.toml").write_text("[CondaPkg]\n")
    before = manifest.read_text()
    own = own_environment(julia, tmp_path / "own")
    assert own == julia._replace(project=str(tmp_path / "own"))
    assert own_environment(own) is own
    copy = own_environment(own, tmp_path / "copy")  # of a version, to which Pkg adds a checkout
    assert installed(copy) == installed(own)
    check(own)
    assert installed(own).keys() == {*installed(julia), NAME}
    entries = tomllib.loads((tmp_path / "own" / "Manifest.toml").read_text())["deps"]
    package = tomllib.loads((package_folder() / "Project.toml").read_text())
    assert entries[NAME] == [
        {"path": str(package_folder()), "deps": sorted(package["deps"])}
        | {name: package[name] for name in ("uuid", "version", "weakdeps", "extensions")}
    ]
    assert entries["Mine"][0]["path"] == str((Path(julia.project) / ".." / "mine").resolve())
    assert (tmp_path / "own" / "LocalPreferences.toml").read_text() == "[CondaPkg]\n"
    direct = tomllib.loads((tmp_path / "own" / "Project.toml").read_text())["deps"]
    assert direct.keys() == {NAME, *COMPLETE} - {"JSON"}
    assert manifest.read_text() == before


def test_own_environment_is_reused_and_follows_the_project(executable: Make, project: Make) -> None:
    julia = Julia(executable(), project(), "a test")
    first = own_environment(julia)
    file = Path(first.project, "Manifest.toml")
    inode = file.stat().st_ino
    assert own_environment(julia) == first
    assert file.stat().st_ino == inode
    manifest = Path(julia.project, "Manifest.toml")
    manifest.write_text(manifest.read_text().replace("0.16.10", "0.16.11"))
    newer = manifest.rename(manifest.with_name("Manifest-v1.10.toml"))
    assert installed(own_environment(julia))["Flux"] == "0.16.11"
    assert not file.exists()
    newer.rename(manifest)
    assert [file.name for file in Path(own_environment(julia).project).glob("Manifest*")] == [manifest.name]


def test_unwritable_folder_is_unavailable(executable: Make, project: Make, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineUnavailable, match="cannot write a Julia project to"):
        own_environment(Julia(executable(), project(), "a test"), tmp_path / "file" / "own")
