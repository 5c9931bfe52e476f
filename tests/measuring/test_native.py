"""The pass of a study that counts natively: which cells, when, and what is said where it cannot be done."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from polybench.data import synthetic
from polybench.measuring import native, rounds
from polybench.measuring.state import StudyState
from polybench.worker.native import SOURCE
from tests.measuring.test_study import Listener, run

MEMRAY = "native allocations are not counted: memray is not installed (pip install 'polybench[memray]')"
FEW: dict[str, Any] = {"processes": 1, "rounds": 1, "steps": 2, "batch_size": 8, "parity": False}


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 100)


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Their names when the study ends."""
    names: set[str] = set()
    finish = StudyState.finish

    def looking(self: StudyState) -> Any:
        names.update(path.name for path in self.logs.iterdir())
        return finish(self)

    monkeypatch.setattr(StudyState, "finish", looking)
    return names


def test_each_cell_that_computes_is_counted_once_after_all_timing(logs: set[str]) -> None:
    listener = Listener()
    many = FEW | {"processes": 2}
    document = run("reference", "reference", "fake", listener=listener, **many)
    counted, repeat, scripted = (result.allocations.native for result in document.results)
    assert counted is not None
    assert (counted.source, counted.relative_bytes) == (SOURCE, 1)
    assert counted.bytes_per_step > 1 << 20
    assert (repeat, scripted) == (None, None)
    assert not any("native" in name for name in logs)
    rounds = [number for number, stage in enumerate(listener.stages) if "round" in stage]
    assert listener.stages[rounds[-1] + 1 :] == ["counting native allocations of reference/cpu"]


def test_what_was_timed_is_kept_before_it_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(rounds, "count_native", lambda state, members: seen.append(state.done.replicates))
    run("reference", **FEW)
    assert seen == [1]


def test_a_single_replicate_that_times_its_pipeline_at_its_end_leaves_it_to_other_processes(
    logs: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native, "counts_natively", lambda plan, cell: True)
    (result,) = run("fake", input="pipeline", **FEW).results
    assert result.pipeline is not None
    assert result.allocations.native is not None
    assert "fake_cpu.native.log" in logs


def test_without_metrics_nothing_is_counted() -> None:
    listener = Listener()
    (result,) = run("reference", listener=listener, metrics=False, **FEW).results
    assert result.allocations.native is None
    assert not any("native" in stage for stage in listener.stages)


def test_without_memray_the_study_says_so_once_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "memray" else find(name))
    document = run("reference", "reference", **FEW)
    assert document.warnings.count(MEMRAY) == 1
    assert all(result.status == "ok" and result.allocations.native is None for result in document.results)


def test_what_fails_is_a_warning_of_its_row_and_the_others_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native, "counts_natively", lambda plan, cell: True)
    document = run("fake+uncountable", "reference", **FEW)
    refused, counted = document.results
    assert (refused.status, refused.allocations.native) == ("ok", None)
    assert any(
        text.startswith("native allocations could not be counted: RuntimeError") for text in refused.warnings
    )
    assert counted.allocations.native is not None
