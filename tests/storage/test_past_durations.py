"""Tests of estimates of a study's duration from saved studies."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.machine import host
from polybench.planning.estimate import NO_PAST_MEASUREMENTS, Estimate, estimate
from polybench.planning.plan import Plan, resolve
from polybench.results.document import study_toml
from polybench.schema.metadata import Host, PhaseSeconds
from polybench.schema.options import Study
from polybench.schema.parity import ParityCheck
from polybench.schema.result import Startup
from polybench.schema.study import StudyDocument
from polybench.storage.past_durations import CheckScope, estimate_duration, past_measurements
from polybench.storage.store import Store
from tests.factories import WORKLOAD, measured, study

PHASES = PhaseSeconds(
    data=0.5, parity=6.0, process_starts=[7.0, 5.0, 5.0], rounds=[9.0, 8.0, 8.0], allocation_count=2.0, native_trace=7.5
)
STUDY = Study(engines=("torch", "tf"), devices=("cpu",), data="synthetic", threads=2, processes=3)


@pytest.fixture(autouse=True)
def enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "available_memory", lambda: 64 << 30)


def document(**changes: Any) -> StudyDocument:
    """Return a study of two configurations with the durations above."""
    workload = resolve(STUDY).workload
    workload = msgspec.structs.replace(WORKLOAD, optimizer=workload.optimizer, dataset="cifar10")
    configurations = [
        measured(f"{name}/cpu", step, workload=workload) for name, step in (("torch", 0.016), ("tf", 0.01))
    ]
    fields = {"phase_seconds": PHASES, "finished": True, "study": study_toml(STUDY)}
    return msgspec.structs.replace(study(*configurations), **(fields | changes))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def estimated(plan: Plan, store: Store, host: Host, check: CheckScope = "new") -> Estimate:
    return estimate_duration(plan, past_measurements(plan, store, host), check=check)


def test_same_configurations_take_the_same_time(store: Store) -> None:
    store.save(document())
    plan = resolve(STUDY)
    found = estimated(plan, store, document().host, check="all")
    assert found.total == pytest.approx(0.5 + 6 + 17 + 25 + 2 + 7.5)
    assert estimated(plan, store, document().host).parity == 0  # a passed check is cached
    assert estimated(plan, store, document().host, check="only").total == pytest.approx(6)


def test_fewer_processes_save_only_the_later_starts(store: Store) -> None:
    store.save(document())
    quick = resolve(STUDY.quick())
    found = estimated(quick, store, document().host)
    assert (found.process_starts, found.allocation_count, found.native_trace) == (7.0, 2.0, 7.5)
    assert 0 < found.rounds <= 10


def test_steps_and_starts_of_some_configurations_are_known(store: Store) -> None:
    store.save(document())
    plan = resolve(msgspec.structs.replace(STUDY, engines=("flux", "torch"), rounds_per_process=2, steps_per_round=10))
    past = past_measurements(plan, store, document().host)
    assert past.phase_seconds is None
    assert set(past.step_seconds) == {"torch/cpu"}
    assert past.step_seconds["torch/cpu"] == pytest.approx(0.016, rel=0.01)
    assert past.start_seconds["torch/cpu"] == Startup(0.05, 1.5, 0.2, 0.1, 0.3, 0.02).cold_start_seconds
    default = estimate(plan)
    assert estimate(plan, past).rounds != default.rounds
    assert not past.all_checked


def test_failed_check_is_expected_again(store: Store) -> None:
    failed = document()
    failed.results[1].parity = ParityCheck("fail", "no")
    store.save(failed)
    assert estimated(resolve(STUDY), store, failed.host).parity == 6.0


def test_newest_study_is_used(store: Store) -> None:
    store.save(document())
    newer = document(
        id="20250102-000000-abcd",
        created="2025-01-02T00:00:00Z",
        phase_seconds=msgspec.structs.replace(PHASES, native_trace=3.0, parity=0.0),
    )
    store.save(newer)
    past = past_measurements(resolve(STUDY), store, newer.host)
    assert past.phase_seconds is not None
    assert past.phase_seconds.native_trace == 3.0
    assert past.parity_seconds == 6.0  # of the newest study with a parity check
    assert past.has_same_rounds


def test_study_without_counting_does_not_predict_counting(store: Store) -> None:
    without_metrics = msgspec.structs.replace(STUDY, metrics=False)
    newer = document(
        id="20250102-000000-abcd",
        created="2025-01-02T00:00:00Z",
        study=study_toml(without_metrics),
        phase_seconds=msgspec.structs.replace(PHASES, allocation_count=0.0, native_trace=0.0),
    )
    store.save(newer)
    default, found = estimate(resolve(STUDY)), estimated(resolve(STUDY), store, newer.host)
    assert min(default.allocation_count, default.native_trace) > 0
    assert found.native_trace > 0
    assert found.allocation_count > 0
    assert found.process_starts == sum(PHASES.process_starts)
    store.save(document())
    found = estimated(resolve(STUDY), store, newer.host)
    assert (found.allocation_count, found.native_trace) == (2.0, 7.5)
    without = estimated(resolve(without_metrics), store, newer.host)
    assert (without.allocation_count, without.native_trace) == (0.0, 0.0)


def other_host(document: StudyDocument) -> None:
    document.host.hostname = "another"


def other_processor(document: StudyDocument) -> None:
    document.host.cpu = "another"


def other_threads(document: StudyDocument) -> None:
    for result in document.results:
        result.workload = msgspec.structs.replace(result.workload, threads=1)


def failed(document: StudyDocument) -> None:
    for result in document.results:
        result.status = "failed"


@pytest.mark.parametrize("change", [other_host, other_processor, failed])
def test_other_machines_and_failures_are_ignored(change: Callable[[StudyDocument], None], store: Store) -> None:
    saved = document()
    change(saved)
    store.save(saved)
    assert past_measurements(resolve(STUDY), store, document().host) == NO_PAST_MEASUREMENTS


def test_another_workload_predicts_starts_only(store: Store) -> None:
    saved = document()
    other_threads(saved)
    store.save(saved)
    start = Startup(0.05, 1.5, 0.2, 0.1, 0.3, 0.02).cold_start_seconds
    expected = NO_PAST_MEASUREMENTS._replace(start_seconds={"torch/cpu": start, "tf/cpu": start})
    for plan in (resolve(STUDY), resolve(msgspec.structs.replace(STUDY, batch_size=16))):
        assert past_measurements(plan, store, saved.host) == expected


@pytest.mark.parametrize("change", [{"phase_seconds": None}, {"finished": False}, {"phase_seconds": PhaseSeconds()}])
def test_unfinished_study_predicts_only_single_configurations(change: dict[str, Any], store: Store) -> None:
    store.save(document(**change))
    past = past_measurements(resolve(STUDY), store, document().host)
    assert past.phase_seconds is None
    assert len(past.step_seconds) == 2


def test_unreadable_study_is_ignored(store: Store) -> None:
    path = store.save(document())
    path.write_bytes(path.read_bytes().replace(b'"results"', b'"outcomes"'))
    assert past_measurements(resolve(STUDY), store, document().host) == NO_PAST_MEASUREMENTS
    (store.folder / "20250103-000000-abcd.json").write_text("{")
    assert past_measurements(resolve(STUDY), store, document().host) == NO_PAST_MEASUREMENTS
