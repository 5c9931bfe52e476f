"""Native allocations in a study: which configurations are counted, when, and what happens on failure."""

from __future__ import annotations

import importlib.util
from typing import Any

import msgspec
import pytest

from polybench.engines import ENGINES
from polybench.protocol.process import WorkerProcess
from polybench.runner import allocations, process_runs, workers
from polybench.runner.configuration_run import ConfigurationRun
from polybench.runner.session import Session
from polybench.worker.allocations import SOURCE
from tests.runner.studies import RecordingProgress, run

MEMRAY = "native allocations are not counted: memray is not installed (pip install 'polybench-dl[memray]')"
MINIMAL: dict[str, Any] = {
    "model": "mnist-mlp",
    "processes": 1,
    "rounds_per_process": 1,
    "steps_per_round": 2,
    "batch_size": 8,
    "parity": False,
}


@pytest.fixture
def logs(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the log files when the study ends."""
    names: set[str] = set()
    end = Session.end

    def record_and_end(self: Session, **options: Any) -> Any:
        names.update(path.name for path in self.logs.iterdir())
        return end(self, **options)

    monkeypatch.setattr(Session, "end", record_and_end)
    return names


def test_each_real_engine_is_counted_once_after_all_timing(logs: set[str]) -> None:
    listener = RecordingProgress()
    two_processes = MINIMAL | {"processes": 2}
    document = run("reference", "reference", "fake", listener=listener, **two_processes)
    counted, duplicate, simulated = (result.allocations.native for result in document.results)
    assert counted is not None
    assert (counted.source, counted.ratio_to_baseline) == (SOURCE, 1)
    assert counted.bytes_per_step > 1 << 20
    assert (duplicate, simulated) == (None, None)
    assert not any("native" in name for name in logs)
    process_runs = [number for number, stage in enumerate(listener.stages) if "round" in stage]
    assert listener.stages[process_runs[-1] + 1 :] == ["counting native allocations of reference/cpu"]


def test_the_process_run_ends_between_timing_and_counting(monkeypatch: pytest.MonkeyPatch) -> None:
    finished = []
    monkeypatch.setattr(
        process_runs, "count_native_allocations", lambda state, workers: finished.append(state.measured.process_runs)
    )
    run("reference", **MINIMAL)
    assert finished == [1]


def test_allocations_are_counted_in_other_processes_if_the_pipeline_is_timed_last(
    logs: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(allocations, "has_native_count", lambda plan, configuration: True)
    (result,) = run("fake", input="pipeline", **MINIMAL).results
    assert result.pipeline is not None
    assert result.allocations.native is not None
    assert "fake_cpu.native.log" in logs


def test_an_engine_with_a_pool_is_counted_once_in_a_process_without_it(
    logs: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pools_off = {"NPY_DISABLE_CPU_FEATURES": ""}  # a variable that NumPy knows
    spec = msgspec.structs.replace(ENGINES["reference"], counting_environment=pools_off)
    monkeypatch.setitem(ENGINES, "reference", spec)
    started = []

    def start_worker(run: ConfigurationRun, *args: Any, **options: Any) -> WorkerProcess:
        started.append((run.configuration.name, options))
        return workers.start_worker(run, *args, **options)

    monkeypatch.setattr(allocations, "start_worker", start_worker)
    listener = RecordingProgress()
    (result,) = run("reference", listener=listener, **MINIMAL | {"processes": 2}).results
    assert result.allocations.native is not None
    assert started == [("reference/cpu", {"extra_env_vars": pools_off})]
    assert "reference_cpu.native.log" in logs
    assert sum("counting native" in stage for stage in listener.stages) == 1


def test_nothing_is_counted_without_metrics() -> None:
    listener = RecordingProgress()
    (result,) = run("reference", listener=listener, metrics=False, **MINIMAL).results
    assert (result.allocations.host, result.allocations.native) == (None, None)
    assert result.memory.peak_rss_bytes is not None
    assert not any("native" in stage for stage in listener.stages)


def test_a_study_without_memray_warns_once_and_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "memray" else find(name))
    document = run("reference", "reference", **MINIMAL)
    assert document.warnings.count(MEMRAY) == 1
    assert all(result.status == "ok" and result.allocations.native is None for result in document.results)


def test_a_failed_count_is_a_warning_of_its_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocations, "has_native_count", lambda plan, configuration: True)
    document = run("faulty+no_allocation_count", "reference", **MINIMAL)
    failed, counted = document.results
    assert (failed.status, failed.allocations.native) == ("ok", None)
    assert any(text.startswith("cannot count native allocations: RuntimeError") for text in failed.warnings)
    assert counted.allocations.native is not None
