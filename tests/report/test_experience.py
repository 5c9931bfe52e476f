"""What saved studies tell of how long another one takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.core.document.circumstances import Took
from polybench.core.document.identity import Parity
from polybench.core.document.study import StudyDocument
from polybench.core.document.times import Startup
from polybench.core.spec import Study
from polybench.machine import host
from polybench.planning.estimate import NOTHING_KNOWN, estimate
from polybench.planning.plan import resolve
from polybench.report.document import study_toml
from polybench.report.experience import expected, experience
from polybench.report.saved_studies import Store
from tests.factories import WORKLOAD, measured, study

TOOK = Took(data=0.5, parity=6.0, starts=[7.0, 5.0, 5.0], rounds=[9.0, 8.0, 8.0], counting=2.0, native=7.5)
STUDY = Study(engines=("torch", "tf"), devices=("cpu",), data="synthetic", threads=2, processes=3)


@pytest.fixture(autouse=True)
def enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "available_memory", lambda: 64 << 30)


def document(**changes: Any) -> StudyDocument:
    """Of this workload and two cells, by the numbers above."""
    work = resolve(STUDY).workload
    work = msgspec.structs.replace(WORKLOAD, optimizer=work.optimizer, dataset="cifar10")
    cells = [measured(f"{name}/cpu", step, workload=work) for name, step in (("torch", 0.016), ("tf", 0.01))]
    fields = {"took": TOOK, "finished": True, "study": study_toml(STUDY)}
    return msgspec.structs.replace(study(*cells), **(fields | changes))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_the_same_cells_take_as_long_again(store: Store) -> None:
    store.save(document())
    plan = resolve(STUDY)
    found = expected(plan, store, document().host, check="all")
    assert found.total == pytest.approx(0.5 + 6 + 17 + 25 + 2 + 7.5)
    assert expected(plan, store, document().host).parity == 0  # what has passed is not checked again
    assert expected(plan, store, document().host, check="only").total == pytest.approx(6)


def test_with_fewer_processes_only_later_starts_are_saved(store: Store) -> None:
    store.save(document())
    quick = resolve(STUDY.quick())
    found = expected(quick, store, document().host)
    assert (found.starts, found.counting, found.native) == (7.0, 2.0, 7.5)
    assert 0 < found.rounds <= 10


def test_some_of_the_cells_tell_of_their_steps_and_starts(store: Store) -> None:
    store.save(document())
    plan = resolve(msgspec.structs.replace(STUDY, engines=("flux", "torch"), rounds=2, steps=10))
    known = experience(plan, store, document().host)
    assert known.took is None
    assert set(known.steps) == {"torch/cpu"}
    assert known.steps["torch/cpu"] == pytest.approx(0.016, rel=0.01)
    assert known.starts["torch/cpu"] == Startup(0.05, 1.5, 0.2, 0.1, 0.3, 0.02).total_seconds
    guess = estimate(plan)
    assert estimate(plan, known).rounds != guess.rounds
    assert not known.checked


def test_a_check_that_failed_is_expected_again(store: Store) -> None:
    failed = document()
    failed.results[1].parity = Parity("fail", "no")
    store.save(failed)
    assert expected(resolve(STUDY), store, failed.host).parity == 6.0


def test_the_newest_study_counts(store: Store) -> None:
    store.save(document())
    newer = document(
        id="20250102-000000-abcd",
        created="2025-01-02T00:00:00Z",
        took=msgspec.structs.replace(TOOK, native=3.0, parity=0.0),
    )
    store.save(newer)
    known = experience(resolve(STUDY), store, newer.host)
    assert known.took is not None
    assert known.took.native == 3.0
    assert known.parity == 6.0  # of the newest that did a check
    assert known.same_rounds


def test_a_study_that_counts_nothing_tells_nothing_of_counting(store: Store) -> None:
    plain = msgspec.structs.replace(STUDY, metrics=False)
    newer = document(
        id="20250102-000000-abcd",
        created="2025-01-02T00:00:00Z",
        study=study_toml(plain),
        took=msgspec.structs.replace(TOOK, counting=0.0, native=0.0),
    )
    store.save(newer)
    guess, found = estimate(resolve(STUDY)), expected(resolve(STUDY), store, newer.host)
    assert min(guess.counting, guess.native) > 0
    assert found.native > 0
    assert found.counting > 0
    assert found.starts == sum(TOOK.starts)
    store.save(document())
    found = expected(resolve(STUDY), store, newer.host)
    assert (found.counting, found.native) == (2.0, 7.5)
    without = expected(resolve(plain), store, newer.host)
    assert (without.counting, without.native) == (0.0, 0.0)


def elsewhere(document: StudyDocument) -> None:
    document.host.hostname = "another"


def other_processor(document: StudyDocument) -> None:
    document.host.cpu = "another"


def other_threads(document: StudyDocument) -> None:
    for result in document.results:
        result.workload = msgspec.structs.replace(result.workload, threads=1)


def failed(document: StudyDocument) -> None:
    for result in document.results:
        result.status = "failed"


@pytest.mark.parametrize("change", [elsewhere, other_processor, other_threads, failed])
def test_other_machines_and_workloads_tell_nothing(
    change: Callable[[StudyDocument], None], store: Store
) -> None:
    saved = document()
    change(saved)
    store.save(saved)
    assert experience(resolve(STUDY), store, document().host) == NOTHING_KNOWN


@pytest.mark.parametrize("change", [{"took": None}, {"finished": False}, {"took": Took()}])
def test_what_has_not_come_to_its_end_tells_of_single_cells_only(
    change: dict[str, Any], store: Store
) -> None:
    store.save(document(**change))
    known = experience(resolve(STUDY), store, document().host)
    assert known.took is None
    assert len(known.steps) == 2


def test_what_cannot_be_read_tells_nothing(store: Store) -> None:
    path = store.save(document())
    path.write_bytes(path.read_bytes().replace(b'"results"', b'"outcomes"'))
    assert experience(resolve(STUDY), store, document().host) == NOTHING_KNOWN
    (store.folder / "20250103-000000-abcd.json").write_text("{")
    assert experience(resolve(STUDY), store, document().host) == NOTHING_KNOWN
