"""The variables of a Julia worker."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.engines import ENGINES
from polybench.engines.flux.julia import saved_config
from polybench.engines.flux.julia.discovery import EXECUTABLE, FOUND_BY, PROJECT
from polybench.engines.flux.julia.environment import environment, threads
from polybench.errors import EngineUnavailable
from polybench.protocol.environment import worker_environment
from tests.engines.flux.julia.conftest import Make


def test_worker_gets_the_variables_of_juliacall() -> None:
    saved_config.save("/saved/julia", "/saved")
    found = worker_environment(ENGINES["flux"], "cpu", 3)
    assert found[EXECUTABLE], found[PROJECT] == ("/saved/julia", "/saved")
    assert found["PYTHON_JULIACALL_THREADS"] == found["JULIA_NUM_THREADS"] == found["OMP_NUM_THREADS"] == "3"
    assert found["OPENBLAS_NUM_THREADS"] == "1"
    assert found["PYTHON_JULIACALL_HANDLE_SIGNALS"] == "yes"
    assert not [name for name in worker_environment(ENGINES["torch"], "cpu", 3) if "JULIACALL" in name]


def test_environment_project_uses_the_same_julia() -> None:
    saved_config.save("/saved/julia", "/saved")
    found = worker_environment(ENGINES["flux"], "cpu", 3, project="/dev")
    assert (found[EXECUTABLE], found[PROJECT], found[FOUND_BY]) == ("/saved/julia", "/dev", "--env")
    plain = worker_environment(ENGINES["flux"], "cpu", 3)
    assert {name for name in plain if plain[name] != found[name]} == {PROJECT, FOUND_BY}


def test_framework_threads_is_one_julia_thread() -> None:
    saved_config.save("/saved/julia", "/saved")
    found = worker_environment(ENGINES["flux"], "cpu", 3, ("framework_threads",))
    assert found["PYTHON_JULIACALL_THREADS"] == found["JULIA_NUM_THREADS"] == "1"
    assert found["OPENBLAS_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    ("study", "variants", "expected"),
    [(1, (), (1, 1)), (2, (), (2, 1)), (8, (), (8, 1)), (8, ("framework_threads",), (1, 8))],
)
def test_only_one_pool_has_several_threads_by_default(
    study: int, variants: tuple[str, ...], expected: tuple[int, int]
) -> None:
    assert threads(study, variants) == expected


def test_variant_sets_blas_threads() -> None:
    assert threads(2, ("blas2",)) == (2, 2)
    assert threads(4, ("blas1", "framework_threads")) == (1, 1)
    saved_config.save("/saved/julia", "/saved")
    found = worker_environment(ENGINES["flux"], "cpu", 3, ("blas8",))
    assert (found["JULIA_NUM_THREADS"], found["OPENBLAS_NUM_THREADS"]) == ("3", "8")
    with pytest.raises(EngineUnavailable, match=r"blas1\+blas2 sets the BLAS threads more than once"):
        threads(2, ("blas1", "blas2"))


def test_all_cores_sets_both_pools() -> None:
    assert threads(4, ("all_cores",)) == (4, 4)
    with pytest.raises(EngineUnavailable, match="more than once"):
        threads(4, ("all_cores", "blas2"))


@pytest.mark.parametrize(("version", "threads"), [("1.10.8", "3"), ("1.11.6", "3"), ("1.12.0", "3,0")])
def test_julia_has_no_interactive_thread(version: str, threads: str, executable: Make) -> None:
    saved_config.save(executable(f"julia version {version}"), f"/of {version}")
    found = worker_environment(ENGINES["flux"], "cpu", 3)
    assert found["JULIA_NUM_THREADS"] == found["PYTHON_JULIACALL_THREADS"] == threads
    assert found["OPENBLAS_NUM_THREADS"] == "1"


def test_worker_gets_the_path_of_libjulia_if_it_exists(executable: Make, tmp_path: Path) -> None:
    library = tmp_path / "libjulia.so"
    library.touch()
    saved_config.save(executable(), "/a", library=str(library), bindir=str(tmp_path))
    found = worker_environment(ENGINES["flux"], "cpu", 3)
    assert found["PYTHON_JULIACALL_LIB"] == str(library)
    assert found["PYTHON_JULIACALL_BINDIR"] == str(tmp_path)
    library.unlink()
    assert not {"PYTHON_JULIACALL_LIB", "PYTHON_JULIACALL_BINDIR"} & set(worker_environment(ENGINES["flux"], "cpu", 3))


def test_without_julia_the_worker_reports_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXECUTABLE, "/only/this")
    assert environment("cpu", 2, ()) == {}
