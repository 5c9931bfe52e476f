"""Whole studies with the fake engine, in real processes."""

from __future__ import annotations

import ctypes.util
import functools
import importlib.util
import time
from pathlib import Path
from typing import Any

import pytest

from polybench.engines import ENGINES
from polybench.engines.fake.engine import (
    ALLOCATIONS,
    DATA_WAIT_SECONDS,
    GC_SECONDS,
    PIPELINE_BATCH_SECONDS,
    STEP_SECONDS,
)
from polybench.errors import BadInput
from polybench.log import BlockTimed, Header, ProcessEnded, StudyEnded, read_log
from polybench.machine import host
from polybench.machine.process_counters import cpu_seconds
from polybench.protocol import calls
from polybench.protocol.process import WorkerProcess
from polybench.render import render
from polybench.results.document import derive
from polybench.run import run_study
from polybench.runner.scratch import exclusive_lock
from polybench.schema.options import Study
from polybench.schema.result import Result
from polybench.schema.study import StudyDocument
from polybench.storage.store import Store
from tests.runner.studies import FAST, RecordingProgress, run, saved

REAL_PIPELINE: dict[str, Any] = {
    "input": "pipeline", "augment": True, "loader_workers": 1, "threads": 1, "batch_size": 8, "parity_steps": 1,
    "metrics": False, "timeout": 300.0,
}  # fmt: skip


@functools.cache
def three_configurations() -> StudyDocument:
    """Run a study once for all tests that read its result."""
    return run("fake", "fake+slow", "fake", prices={"cpu": 3.6})


def test_a_study_measures_every_configuration_in_every_process_and_round() -> None:
    result = three_configurations()
    assert [r.configuration for r in result.results] == ["fake/cpu", "fake+slow/cpu", "fake/cpu#2"]
    for configuration in result.results:
        assert configuration.status == "ok"
        assert configuration.step_times is not None
        assert [[len(r) for r in p] for p in configuration.step_times.values] == [[5, 5, 5]] * 2
        assert configuration.step_time is not None
        assert configuration.step_time.n == 30
    slow = result.result("fake+slow/cpu")
    assert slow.vs_baseline is not None
    assert slow.vs_baseline.speedup == pytest.approx(0.5, rel=0.2)
    assert slow.vs_baseline.scope == "processes"
    assert result.settings.baseline == "fake/cpu"
    assert len(result.interference) == 2 * 3


def test_a_text_gives_tokens_per_second(tmp_path: Path) -> None:
    file = tmp_path / "play.txt"
    file.write_text("to be, or not to be\n" * 200, "utf-8")
    study = run("fake", model="char-gpt", data=str(file), batch_size=4)
    (result,) = study.results
    assert (study.settings.dataset, result.status) == ("text", "ok")
    assert result.items_per_second is not None
    assert result.tokens_per_second == pytest.approx(64 * result.items_per_second)
    (image_result,) = run("fake").results
    assert image_result.tokens_per_second is None


def test_a_failure_affects_only_its_configuration() -> None:
    engines = ["fake", *(f"faulty+{variant}" for variant in ("crash", "bad_message", "nan", "hang", "unavailable"))]
    result = run(*engines, timeout=5.0)
    by_name = {r.variant: r for r in result.results}
    assert by_name[None].is_measured
    assert "SIGSEGV" in (by_name["crash"].reason or "")
    assert "invalid response" in (by_name["bad_message"].reason or "")
    assert "the loss is nan" in (by_name["nan"].reason or "")
    assert "timed out" in (by_name["hang"].reason or "")
    for name in ("crash", "bad_message", "nan", "hang"):
        assert by_name[name].status == "failed"
        assert Path(by_name[name].log_path or "").exists()
        assert by_name[name].vs_baseline is None
    assert by_name["unavailable"].status == "unavailable"
    assert by_name["unavailable"].log_path is None
    assert by_name["unavailable"].hint


def test_every_event_is_in_the_log_as_soon_as_it_has_happened(tmp_path: Path) -> None:
    """Whoever kills the study before a phase finds all earlier ones in its log."""
    ended: dict[str, int] = {}

    class ReadLog(RecordingProgress):
        def on_stage(self, text: str) -> None:
            if logs := list(tmp_path.glob("*.jsonl")):
                ended[text] = sum(isinstance(event, ProcessEnded) for event in read_log(logs[0]))

    run("fake", listener=ReadLog(), store=Store(tmp_path))
    assert [ended[f"process {number} of 2: round 3 of 3"] for number in (1, 2)] == [0, 1]
    (log,) = tmp_path.glob("*.jsonl")
    events = read_log(log)
    assert derive(events) == saved(tmp_path)
    blocks = [(event.process, event.round) for event in events if isinstance(event, BlockTimed) and not event.attempt]
    assert blocks == [(process, number) for process in range(2) for number in range(3)]
    kinds = [type(event) for event in events]
    assert (kinds[0], kinds[-1], kinds.count(Header), kinds.count(StudyEnded)) == (Header, StudyEnded, 1, 1)
    assert not list(tmp_path.glob("logs/*"))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"engines": ("torhc",)}, "did you mean 'torch'"),
        ({"engines": ("torch+compiled",)}, "did you mean 'compile'"),
        ({"engines": ("torch+compile+compile",)}, "repeats a variant"),
        ({"engines": ("fake",), "model": "lennet"}, "did you mean 'lenet'"),
        ({"engines": ("fake",), "optimizer": "momentun"}, "did you mean 'momentum'"),
        ({"engines": ("fake",), "baseline": "torch/cpu"}, "unknown configuration"),
        ({"engines": ("fake",), "batch_size": 2001}, "2001"),
        ({"engines": ("fake",), "data": "/no/such/folder"}, "/no/such/folder"),
        ({"engines": ("fake",), "devices": ("cpu",), "prices": {"cuda": 1.0}}, "device with a price"),
        ({"engines": ("fake",), "precision": "tf32"}, "tf32"),
        ({"engines": ("fake",), "loader_workers": 2}, "--loader-workers requires an input pipeline"),
        ({"engines": ("fake",), "augment": True}, "--augment requires an input pipeline"),
        (
            {"engines": ("fake",), "input": "pipeline", "epochs": 1_000_000},
            r"1000000 epochs exceed the limit for input pipelines: use at most --epochs \d+$",
        ),
    ],
)
def test_bad_input_is_reported_before_anything_is_started(fields: dict[str, Any], message: str) -> None:
    listener = RecordingProgress()
    with pytest.raises(BadInput, match=message):
        run_study(Study(**(FAST | fields)), listener, store=None)
    assert set(listener.stages) <= {"preparing data"}


def test_an_unwritable_results_folder_is_reported_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    listener = RecordingProgress()
    with pytest.raises(BadInput, match="cannot write results"):
        run_study(Study(engines=("fake",), **FAST), listener, store=Store(tmp_path / "file"))
    assert listener.stages == []


def test_caveats_are_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1234")
    monkeypatch.setattr(host, "usable_threads", lambda: 1)
    listener = RecordingProgress()
    with exclusive_lock():
        delays = {"fake/cpu": 0.5}
        result = run("fake", "fake", listener=listener, threads=2, margin=1e-6, injected_delays=delays)
    text = "\n".join(result.warnings)
    assert "another study" in text
    assert "2 threads on 1 usable cores" in text
    assert "margin of error of speedups above" in text
    assert "fake/cpu has an injected delay of 50% per step" in text
    assert "workers get other values than your environment has: OMP_NUM_THREADS=1234 (set to " in text
    assert listener.warnings == result.warnings


def test_the_budget_limits_explicit_rounds() -> None:
    result = run("fake", rounds_per_process=10_000, steps_per_round=200, budget=1.0, processes=2)
    assert any("budget of 1 s" in text for text in result.warnings)
    assert result.results[0].is_measured


def test_costs_are_relative_to_the_baseline() -> None:
    slow = three_configurations().result("fake+slow/cpu")
    assert slow.cost is not None
    assert slow.epoch_seconds is not None
    assert slow.cost.dollars_per_epoch == pytest.approx(slow.epoch_seconds / 1000)
    assert slow.cost.relative == pytest.approx(2.0, rel=0.2)


def test_idle_workers_sleep(tmp_path: Path) -> None:
    with WorkerProcess({}, tmp_path / "log") as worker:
        worker.request(calls.load(ENGINES["fake"].factory), 60.0)
        before = cpu_seconds(worker.pid)
        time.sleep(1.0)
        assert cpu_seconds(worker.pid) - before < 0.02


def test_memory_allocations_and_garbage_collection_are_in_the_result() -> None:
    result = three_configurations().result("fake/cpu")
    assert result.allocations.host == ALLOCATIONS
    assert result.allocations.device is None
    assert result.gc.seconds_per_step == pytest.approx(GC_SECONDS)
    assert result.gc.full_collections is not None
    memory = result.memory
    assert memory.peak_rss_bytes is not None
    assert memory.rss_after_import_bytes is not None
    assert memory.peak_rss_bytes >= memory.rss_after_import_bytes > 0
    assert memory.rss_anon_bytes is not None
    assert memory.rss_file_bytes is not None


def test_a_failed_allocation_count_is_a_warning() -> None:
    result = run("faulty+no_allocation_count", processes=1).result("faulty+no_allocation_count/cpu")
    assert result.status == "ok"
    assert result.allocations.host is None
    assert any("the faulty profiler does not start" in text for text in result.warnings)


def test_a_pipeline_has_separate_times_of_waiting_pipeline_and_training() -> None:
    pipeline: dict[str, Any] = {"input": "pipeline", "augment": True, "threads": 1}
    document = run("fake", "reference", processes=1, batch_size=100, **pipeline)
    result = document.result("fake/cpu")
    workload = result.workload
    assert (workload.input, workload.loader_workers, workload.augment) == ("pipeline", 1, True)
    assert (document.settings.loader_workers, document.settings.augment) == (1, True)
    assert result.step_times is not None
    assert result.step_times.resolution == "block"
    assert result.pipeline is not None
    assert result.pipeline.data_wait_seconds_per_step == pytest.approx(DATA_WAIT_SECONDS)
    assert result.pipeline.compute_seconds_per_step == pytest.approx(STEP_SECONDS, rel=0.2)
    assert result.pipeline.pipeline_items_per_second == pytest.approx(100 / PIPELINE_BATCH_SECONDS)
    assert result.pipeline.training_items_per_second == pytest.approx(100 / STEP_SECONDS, rel=0.2)
    unavailable = document.result("reference/cpu")
    assert (unavailable.status, unavailable.hint) == ("unavailable", "use --input preload")


@pytest.mark.wide  # engines/test_requirements has every engine, test_pinning.py PyTorch in a study
def test_a_real_pipeline_passes_the_parity_check_and_is_timed() -> None:
    """Tests TensorFlow. test_pinning.py tests PyTorch, and tests/engines all engines."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("tensorflow is not installed")
    (result,) = run("tf", processes=1, rounds_per_process=1, **REAL_PIPELINE).results
    assert_pipeline_is_timed(result)


def assert_pipeline_is_timed(result: Result) -> None:
    assert (result.status, result.parity.status) == ("ok", "pass"), result
    pipeline, seconds = result.pipeline, result.step_time
    assert pipeline is not None
    assert seconds is not None
    assert pipeline.data_wait_seconds_per_step is not None
    assert pipeline.compute_seconds_per_step is not None
    assert pipeline.data_wait_seconds_per_step > 0
    total = pipeline.data_wait_seconds_per_step + pipeline.compute_seconds_per_step
    assert total == pytest.approx(seconds.mean)
    assert pipeline.pipeline_items_per_second is not None
    assert pipeline.training_items_per_second is not None


def test_configurations_that_exceed_memory_run_in_groups_with_separate_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "available_memory", lambda: 1)
    own_choice = {"steps_per_round": None, "rounds_per_process": None}
    result = run("fake+slow", "fake", processes=1, budget=4.0, batch_size=10, **own_choice)
    assert any("2 groups" in warning for warning in result.warnings)
    slow, fast = result.results
    assert slow.step_times is not None
    assert fast.step_times is not None
    # Each group has half of the budget, so its blocks have twice as many steps of half the duration.
    assert len(fast.step_times.values[0][0]) == pytest.approx(2 * len(slow.step_times.values[0][0]), rel=0.25)
    assert result.settings.steps_per_round is None
    assert fast.vs_baseline is not None
    assert not fast.vs_baseline.side_by_side
    assert slow.vs_baseline is not None
    assert slow.vs_baseline.side_by_side
    two = {"processes": 2, "rounds_per_process": 1, "prices": {"cpu": 1.0}}
    apart = render(run("fake+slow", "fake", **two), "table", width=200)
    (row,) = (line for line in apart.splitlines() if line.startswith("fake/cpu"))
    assert f"{row} ".count(" * ") == 2  # speed-up and relative cost
    assert "* not measured side by side with the baseline" in apart
    monkeypatch.undo()
    together = run("fake+slow", "fake", **two)
    assert "*" not in render(together, "table")


def test_precisions_are_configurations_of_one_study() -> None:
    result = run("fake", precision=("fp32", "bf16"), processes=1, rounds_per_process=1)
    assert [r.configuration for r in result.results] == ["fake/cpu", "fake/cpu/bf16"]
    other = result.results[1].vs_baseline
    assert other is not None
    assert (other.baseline, result.settings.precision) == ("fake/cpu", "fp32,bf16")


def test_the_study_has_a_malloc_policy_and_a_variant_may_use_the_system_one() -> None:
    result = run("fake", "fake+system_malloc", processes=1, rounds_per_process=1)
    retain, system = (configuration.versions["environment"]["GLIBC_TUNABLES"] for configuration in result.results)
    assert "trim_threshold" in retain
    assert "arena_max=1" in retain
    assert "trim_threshold" not in system
    assert result.settings.malloc == "retain"
    assert result.results[0].interference.minor_faults_per_step is not None
    assert run("fake", malloc="system", processes=1, rounds_per_process=1).settings.malloc == "system"


def test_a_variant_whose_allocator_is_not_installed_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    plain, *preloaded = run("fake", "fake+jemalloc", "fake+jemalloc", processes=1, rounds_per_process=1).results
    assert plain.is_measured
    assert [result.status for result in preloaded] == ["unavailable"] * 2
    assert preloaded[0].hint == "apt-get install libjemalloc2"
