"""A study takes the identity checks that an earlier one has passed, and none that may not hold any more."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from polybench.core.document.study import StudyDocument
from polybench.core.spec import Study
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

    def run_steps(self, first, n):
        return super().run_steps(first + ({wrong}), n)  # trains on other batches where that is not 0
"""
FIELDS = FAST | {"processes": 1, "rounds": 1, "steps": 1, "batch_size": 2, "metrics": False, "threads": 1}
STUDY = Study(engines=("planted", "planted"), devices=("cpu",), **FIELDS)


class Checks(Listener):
    """Knows which cells were checked."""

    @property
    def checked(self) -> list[str]:
        return [stage.split()[1] for stage in self.stages if stage.startswith("checking")]


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`plant(version, wrong)` writes an engine, which workers find as they find any package."""
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setitem(ENGINES, "planted", EngineRow("planted_engine:Engine", "a test", copies_data=False))

    def write(version: str = "1", wrong: str = "0") -> None:
        text = ENGINE.format(version=version, wrong=wrong, once=str(tmp_path / "once"))
        (tmp_path / "planted_engine.py").write_text(text)

    write()
    return write


def study(recheck: bool = False, strict: bool = False) -> tuple[StudyDocument, list[str]]:
    """The document, and the cells that were checked for it."""
    listener = Checks()
    document = run_study(STUDY, listener, store=None, check="all" if recheck else "new", strict=strict)
    assert all(result.measured for result in document.results)
    return document, listener.checked


def test_a_passed_check_is_not_repeated_and_told_whole(plant: Callable[..., None]) -> None:
    first, checked = study()
    assert checked == ["planted/cpu"]
    second, checked = study()
    assert checked == []
    for before, after in zip(first.results, second.results, strict=True):
        assert before.parity.status == "pass"
        assert before.parity.checked is not None
        assert before.parity.tensors
        assert after.parity == before.parity
        assert after.versions == before.versions


def wrong_from_now_on(plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(wrong="1")


def another_version(plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(version="2", wrong="1")


def a_variable(plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_BATCH", "1")


@pytest.mark.parametrize("change", [wrong_from_now_on, another_version, a_variable])
def test_a_bug_that_comes_after_a_passed_check_is_found(
    change: Callable[[Callable[..., None], pytest.MonkeyPatch], None],
    plant: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(wrong="int(os.environ.get('OMP_BATCH', '0'))")
    first, _ = study()
    assert {result.parity.status for result in first.results} == {"pass"}
    change(plant, monkeypatch)
    second, checked = study()
    assert checked == ["planted/cpu"]
    assert {result.parity.status for result in second.results} == {"fail"}
    third, checked = study()  # a failure is not kept
    assert checked == ["planted/cpu"]
    assert {result.parity.status for result in third.results} == {"fail"}


def test_a_check_is_repeated_where_that_is_asked_for(plant: Callable[..., None]) -> None:
    study()
    again, checked = study(recheck=True)
    assert checked == ["planted/cpu"]
    assert {result.parity.status for result in again.results} == {"pass"}
    listener = Checks()
    only = run_study(STUDY, listener, store=None, check="only")
    assert listener.checked == ["planted/cpu"]
    assert only.results[0].parity.checked is not None


@pytest.mark.parametrize(("says", "status"), [("1", "fail"), ("1 / 0", "skipped")])
def test_a_check_that_is_repeated_and_does_not_pass_takes_the_earlier_ones_place(
    says: str, status: str, plant: Callable[..., None], tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"  # nothing that a worker loads, so the key and the code stay as they were
    wrong.write_text("0")
    plant(wrong=f"eval(open({str(wrong)!r}).read())")
    assert study()[0].results[0].parity.status == "pass"
    wrong.write_text(says)
    for check in ("all", "new"):
        listener = Checks()
        document = run_study(STUDY, listener, store=None, check=check)
        assert listener.checked == ["planted/cpu"]
        assert {result.parity.status for result in document.results} == {status}


def test_cells_that_memory_does_not_hold_at_once_are_checked_before_any_is_measured(
    plant: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    study()
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
    plant: Callable[..., None], tmp_path: Path
) -> None:
    study()
    plant(version="2")
    (tmp_path / "once").touch()  # in the first replicate either of the two finds it
    listener = Checks()
    document = run_study(STUDY, listener, store=None)
    assert len(listener.checked) == 1
    failed, well = sorted(document.results, key=lambda result: result.status)
    assert (failed.status, failed.measured, failed.parity.status) == ("failed", False, "skipped")
    assert "the one that found it" in str(failed.reason)
    assert (well.status, well.measured, well.parity.status) == ("ok", True, "pass")


def test_strict_looks_whether_engines_are_there_and_checks_none_again(plant: Callable[..., None]) -> None:
    study()
    document, checked = study(strict=True)
    assert checked == []
    assert {result.parity.status for result in document.results} == {"pass"}


def test_layers_take_it_too(plant: Callable[..., None]) -> None:
    study()
    listener = Checks()
    document = run_layers(STUDY, listener)
    assert listener.checked == []
    assert document.engines[0].parity == "pass"


def test_an_engine_that_is_gone_is_unavailable_and_not_identical(
    plant: Callable[..., None], tmp_path: Path
) -> None:
    study()
    (tmp_path / "planted_engine.py").unlink()
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


def test_cells_of_one_kind_share_a_check_and_others_do_not(plant: Callable[..., None]) -> None:
    study()
    listener = Checks()
    other = msgspec.structs.replace(STUDY, learning_rate=0.02)
    run_study(other, listener, store=None)
    assert listener.checked == ["planted/cpu"]
