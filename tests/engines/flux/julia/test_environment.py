"""What a Julia worker is told before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from polybench.core.errors import Unavailable
from polybench.engines import ENGINES
from polybench.engines.flux.julia.environment import environment, threads
from polybench.engines.flux.julia.finding import EXECUTABLE, FOUND_BY, PROJECT
from polybench.engines.flux.julia.remembered import remember
from polybench.wire.environment import worker_environment
from tests.engines.flux.julia.conftest import Make


def test_the_launcher_tells_a_worker_all_that_juliacall_reads() -> None:
    remember("/remembered/julia", "/remembered")
    found = worker_environment(ENGINES["flux"], "cpu", 3)
    assert found[EXECUTABLE], found[PROJECT] == ("/remembered/julia", "/remembered")
    assert found["PYTHON_JULIACALL_THREADS"] == found["JULIA_NUM_THREADS"] == found["OMP_NUM_THREADS"] == "3"
    assert found["OPENBLAS_NUM_THREADS"] == "1"
    assert found["PYTHON_JULIACALL_HANDLE_SIGNALS"] == "yes"
    assert not [name for name in worker_environment(ENGINES["torch"], "cpu", 3) if "JULIACALL" in name]


def test_a_project_that_is_an_environment_is_run_by_the_same_julia() -> None:
    remember("/remembered/julia", "/remembered")
    found = worker_environment(ENGINES["flux"], "cpu", 3, project="/dev")
    assert (found[EXECUTABLE], found[PROJECT], found[FOUND_BY]) == ("/remembered/julia", "/dev", "--env")
    plain = worker_environment(ENGINES["flux"], "cpu", 3)
    assert {name for name in plain if plain[name] != found[name]} == {PROJECT, FOUND_BY}


def test_default_threads_is_one_julia_thread() -> None:
    remember("/remembered/julia", "/remembered")
    found = worker_environment(ENGINES["flux"], "cpu", 3, ("default_threads",))
    assert found["PYTHON_JULIACALL_THREADS"] == found["JULIA_NUM_THREADS"] == "1"
    assert found["OPENBLAS_NUM_THREADS"] == "3"


@pytest.mark.parametrize(
    ("study", "variants", "expected"),
    [(1, (), (1, 1)), (2, (), (2, 1)), (8, (), (8, 1)), (8, ("default_threads",), (1, 8))],
)
def test_by_itself_only_one_pool_has_several_threads(
    study: int, variants: tuple[str, ...], expected: tuple[int, int]
) -> None:
    assert threads(study, variants) == expected


def test_blas_may_have_as_many_as_is_asked_for() -> None:
    assert threads(2, ("blas2",)) == (2, 2)
    assert threads(4, ("blas1", "default_threads")) == (1, 1)
    remember("/remembered/julia", "/remembered")
    found = worker_environment(ENGINES["flux"], "cpu", 3, ("blas8",))
    assert (found["JULIA_NUM_THREADS"], found["OPENBLAS_NUM_THREADS"]) == ("3", "8")
    with pytest.raises(Unavailable, match=r"blas1\+blas2 gives BLAS several numbers"):
        threads(2, ("blas1", "blas2"))


def test_all_threads_is_as_many_for_both() -> None:
    assert threads(4, ("all_threads",)) == (4, 4)
    with pytest.raises(Unavailable, match="several numbers"):
        threads(4, ("all_threads", "blas2"))


@pytest.mark.parametrize(("version", "threads"), [("1.10.8", "3"), ("1.11.6", "3"), ("1.12.0", "3,0")])
def test_python_trains_on_julias_own_threads(version: str, threads: str, executable: Make) -> None:
    remember(executable(f"julia version {version}"), f"/of {version}")
    found = worker_environment(ENGINES["flux"], "cpu", 3)
    assert found["JULIA_NUM_THREADS"] == found["PYTHON_JULIACALL_THREADS"] == threads
    assert found["OPENBLAS_NUM_THREADS"] == "1"


def test_a_worker_is_told_where_libjulia_is_unless_it_has_gone(executable: Make, tmp_path: Path) -> None:
    library = tmp_path / "libjulia.so"
    library.touch()
    remember(executable(), "/a", library=str(library), bindir=str(tmp_path))
    found = worker_environment(ENGINES["flux"], "cpu", 3)
    assert found["PYTHON_JULIACALL_LIB"] == str(library)
    assert found["PYTHON_JULIACALL_BINDIR"] == str(tmp_path)
    library.unlink()
    assert not {"PYTHON_JULIACALL_LIB", "PYTHON_JULIACALL_BINDIR"} & set(
        worker_environment(ENGINES["flux"], "cpu", 3)
    )


def test_without_julia_the_worker_finds_out_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(EXECUTABLE, "/only/this")
    assert environment("cpu", 2, ()) == {}
