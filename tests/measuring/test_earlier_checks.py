"""A study takes the identity checks that an earlier one has passed, and none that may not hold any more."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from polybench.core.document.study import StudyDocument
from polybench.core.spec import Study
from polybench.data import synthetic
from polybench.engines import ENGINES, EngineRow
from polybench.machine import host
from polybench.measuring.layers import run_layers
from polybench.measuring.study import run_study
from polybench.wire.messages import Load, Loaded
from tests.measuring.test_study import FAST, Listener, small_data
from tests.sessions import InProcess

__all__ = ["small_data"]

ENGINE = """
import contextlib, os
from polybench.core.job import Probe
from polybench.engines.reference.engine import ReferenceEngine

class Engine(ReferenceEngine):
    def probe(self):
        with contextlib.suppress(FileNotFoundError):
            os.remove({once!r})
            raise RuntimeError("the one that found it")
        return Probe({{"planted": {version!r}}}, {{}}, ("cpu",))

    def run_steps(self, first, n):  # trains on other batches where these are not 0
        with open({says!r}) as file:
            says = eval(file.read())
        return super().run_steps(first + {wrong} + says + int(os.environ.get("OMP_BATCH", "0")), n)
"""
FIELDS = FAST | {"processes": 1, "rounds": 1, "steps": 1, "batch_size": 2, "metrics": False, "threads": 1}
STUDY = Study(engines=("planted", "planted"), devices=("cpu",), **FIELDS)


class Checks(Listener):
    """Knows which cells were checked."""

    @property
    def checked(self) -> list[str]:
        return [stage.split()[1] for stage in self.stages if stage.startswith("checking")]


Plant = Callable[..., None]


class Planted:
    """The engine's file, in a folder in which workers find it as they find any package.

    As it was first it has its first time again, so that what was checked of it is what is there; any other
    has a time of its own, by which Python knows what to compile again.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self._written = folder, 0

    def write(self, version: str = "1", wrong: int = 0) -> None:
        path, once, says = (self.folder / name for name in ("planted_engine.py", "once", "says"))
        once.unlink(missing_ok=True)
        says.write_text("0")
        path.write_text(ENGINE.format(version=version, wrong=wrong, once=str(once), says=str(says)))
        self._written += 1
        time = 1_700_000_000 + (0 if (version, wrong) == ("1", 0) else 10 * self._written)
        os.utime(path, (time, time))

    def found_by_workers(self, patched: pytest.MonkeyPatch) -> None:
        patched.setenv("PYTHONPATH", f"{self.folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
        row = EngineRow("planted_engine:Engine", "a test", copies_data=False)
        patched.setitem(ENGINES, "planted", row)


@pytest.fixture(scope="module")
def passed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Planted, Path, StudyDocument]:
    """The engine; the caches after a study in which its check has passed; and what that study gave."""
    planted, caches = Planted(tmp_path_factory.mktemp("engine")), tmp_path_factory.mktemp("caches")
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(synthetic.IMAGES, "train", 2000)
        patched.setenv("XDG_CACHE_HOME", str(caches))
        planted.found_by_workers(patched)
        planted.write()
        document, checked = study()
    assert checked == ["planted/cpu"]
    assert {result.parity.status for result in document.results} == {"pass"}
    return planted, caches, document


@pytest.fixture
def plant(passed: tuple[Planted, Path, StudyDocument], monkeypatch: pytest.MonkeyPatch) -> Plant:
    """`plant(version, wrong)` writes another engine, after a study in which the first has passed."""
    planted, caches, _ = passed
    shutil.copytree(caches, os.environ["XDG_CACHE_HOME"], dirs_exist_ok=True)
    planted.found_by_workers(monkeypatch)
    planted.write()
    return planted.write


def study(recheck: bool = False, strict: bool = False) -> tuple[StudyDocument, list[str]]:
    """The document, and the cells that were checked for it."""
    listener = Checks()
    document = run_study(STUDY, listener, store=None, check="all" if recheck else "new", strict=strict)
    assert all(result.measured for result in document.results)
    return document, listener.checked


def test_a_passed_check_is_not_repeated_and_told_whole(
    plant: Plant, passed: tuple[Planted, Path, StudyDocument]
) -> None:
    *_, first = passed
    second, checked = study()
    assert checked == []
    for before, after in zip(first.results, second.results, strict=True):
        assert before.parity.status == "pass"
        assert before.parity.checked is not None
        assert before.parity.tensors
        assert after.parity == before.parity
        assert after.versions == before.versions


def wrong_from_now_on(plant: Plant, _: pytest.MonkeyPatch) -> None:
    plant(wrong=1)


def another_version(plant: Plant, _: pytest.MonkeyPatch) -> None:
    plant(version="2", wrong=1)


def a_variable(_: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_BATCH", "1")


@pytest.mark.parametrize("change", [wrong_from_now_on, another_version, a_variable])
def test_a_bug_that_comes_after_a_passed_check_is_found(
    change: Callable[[Plant, pytest.MonkeyPatch], None], plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(plant, monkeypatch)
    document, checked = study()
    assert checked == ["planted/cpu"]
    assert {result.parity.status for result in document.results} == {"fail"}


def test_a_check_is_repeated_where_that_is_asked_for(plant: Plant) -> None:
    again, checked = study(recheck=True)
    assert checked == ["planted/cpu"]
    assert {result.parity.status for result in again.results} == {"pass"}
    listener = Checks()
    only = run_study(STUDY, listener, store=None, check="only")
    assert listener.checked == ["planted/cpu"]
    assert only.results[0].parity.checked is not None


@pytest.mark.parametrize(("says", "status"), [("1", "fail"), ("1 / 0", "skipped")])
def test_a_check_that_is_repeated_and_does_not_pass_takes_the_earlier_ones_place(
    says: str, status: str, plant: Plant, passed: tuple[Planted, Path, StudyDocument]
) -> None:
    planted, *_ = passed
    (planted.folder / "says").write_text(says)  # no worker loads it: the key and the code stay as they were
    for check in ("all", "new"):
        listener = Checks()
        document = run_study(STUDY, listener, store=None, check=check)
        assert listener.checked == ["planted/cpu"]
        assert {result.parity.status for result in document.results} == {status}


def test_cells_that_memory_does_not_hold_at_once_are_checked_before_any_is_measured(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(version="2")
    monkeypatch.setattr(host, "available_memory", lambda: 1)
    listener = Checks()
    document = run_study(STUDY, listener, store=None)
    assert any("2 groups" in warning for warning in listener.warnings)
    assert listener.checked == ["planted/cpu"]
    assert [[len(process) for process in result.steps] for result in document.results] == [[1], [1]]
    assert {result.parity.status for result in document.results} == {"pass"}
    assert len(document.host.noise) == 2  # one round of each group


def test_a_cell_that_fails_while_another_is_found_to_be_outdated_is_the_only_one_that_failed(
    plant: Plant, passed: tuple[Planted, Path, StudyDocument]
) -> None:
    plant(version="2")
    (passed[0].folder / "once").touch()  # in the first replicate either of the two finds it
    listener = Checks()
    document = run_study(STUDY, listener, store=None)
    assert len(listener.checked) == 1
    failed, well = sorted(document.results, key=lambda result: result.status)
    assert (failed.status, failed.measured, failed.parity.status) == ("failed", False, "skipped")
    assert "the one that found it" in str(failed.reason)
    assert (well.status, well.measured, well.parity.status) == ("ok", True, "pass")


def test_strict_looks_whether_engines_are_there_and_checks_none_again(plant: Plant) -> None:
    document, checked = study(strict=True)
    assert checked == []
    assert {result.parity.status for result in document.results} == {"pass"}


def test_layers_take_it_too(plant: Plant) -> None:
    listener = Checks()
    document = run_layers(STUDY, listener)
    assert listener.checked == []
    assert document.engines[0].parity == "pass"


def test_an_engine_that_is_gone_is_unavailable_and_not_identical(
    plant: Plant, passed: tuple[Planted, Path, StudyDocument]
) -> None:
    (passed[0].folder / "planted_engine.py").unlink()
    document = run_study(STUDY, Checks(), store=None)
    assert [(result.status, result.parity.status) for result in document.results] == [
        ("unavailable", "skipped")
    ] * 2


def test_a_worker_tells_what_it_has_loaded() -> None:
    def told() -> Loaded:
        session = InProcess(ENGINES["reference"].factory)
        return session.ask(Load(ENGINES["reference"].factory), Loaded)

    first = told()
    assert len(first.code) == 64
    assert told() == first


def test_cells_of_one_kind_share_a_check_and_others_do_not(plant: Plant) -> None:
    listener = Checks()
    other = msgspec.structs.replace(STUDY, learning_rate=0.02)
    run_study(other, listener, store=None)
    assert listener.checked == ["planted/cpu"]
