"""Whole studies with the fake engine, in real processes."""

from __future__ import annotations

import ctypes.util
import functools
import importlib.util
import json
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from polybench.core.document.result import Result
from polybench.core.document.study import StudyDocument, from_json
from polybench.core.errors import BadInput, StrictlyUnavailable
from polybench.core.spec import Study
from polybench.data import synthetic
from polybench.engines import ENGINES
from polybench.engines.fake.engine import (
    ALLOCATED,
    COLLECTION_SECONDS,
    DRAWING_SECONDS,
    STEP_SECONDS,
    WAITING_SECONDS,
)
from polybench.machine import host
from polybench.machine.meters.cpu import cpu_seconds
from polybench.measuring.progress import CellSoFar
from polybench.measuring.scratch import only_study_here
from polybench.measuring.study import run_study
from polybench.report.saved_studies import Store
from polybench.wire.messages import Load, Loaded
from polybench.wire.process import WorkerProcess
from tests.plain.test_plain import folder

__all__ = ["folder"]

FAST: dict[str, Any] = {
    "data": "synthetic",
    "processes": 2,
    "rounds": 3,
    "steps": 5,
    "budget": 20.0,
    "timeout": 60.0,
}

REAL_PIPELINE: dict[str, Any] = {
    "input": "pipeline", "augment": True, "workers": 1, "threads": 1, "batch_size": 8, "parity_steps": 1,
    "metrics": False, "timeout": 300.0,
}  # fmt: skip


class Listener:
    def __init__(self) -> None:
        self.stages: list[str] = []
        self.warnings: list[str] = []

    def stage(self, text: str) -> None:
        self.stages.append(text)

    def remaining(self, seconds: float) -> None: ...

    def cells(self, cells: Sequence[CellSoFar]) -> None: ...

    def warn(self, text: str) -> None:
        self.warnings.append(text)


@pytest.fixture(autouse=True)
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(synthetic.IMAGES, "train", 2000)


def run(
    *engines: str, store: Store | None = None, listener: Listener | None = None, **fields: Any
) -> StudyDocument:
    study = Study(engines=engines, **(FAST | fields))
    return run_study(study, listener or Listener(), store=store)


@functools.cache
def three_cells() -> StudyDocument:
    """Measured once for all tests that look at it."""
    return run("fake", "fake+slow", "fake", prices={"cpu": 3.6})


def test_a_study_measures_every_cell_in_every_process_and_round() -> None:
    result = three_cells()
    assert [r.cell for r in result.results] == ["fake/cpu", "fake+slow/cpu", "fake/cpu#2"]
    for cell in result.results:
        assert cell.status == "ok"
        assert cell.samples is not None
        assert [[len(r) for r in p] for p in cell.samples.step_seconds] == [[5, 5, 5]] * 2
        assert cell.step_seconds is not None
        assert cell.step_seconds.n == 30
    slow = result.result("fake+slow/cpu")
    assert slow.relative is not None
    assert slow.relative.speedup == pytest.approx(0.5, rel=0.2)
    assert slow.relative.scope == "processes"
    assert result.settings.baseline == "fake/cpu"
    assert len(result.host.noise) == 2 * 3


def test_one_process_gives_no_verdict_between_processes() -> None:
    result = run("fake", "fake+slow", processes=1)
    relative = result.result("fake+slow/cpu").relative
    assert relative is not None
    assert relative.scope == "within one run"


def test_accidents_become_rows_and_the_others_go_on() -> None:
    engines = [
        "fake",
        *(f"fake+{accident}" for accident in ("crash", "garbage", "nan", "hang", "unavailable")),
    ]
    result = run(*engines, timeout=5.0)
    by_name = {r.variant: r for r in result.results}
    assert by_name[None].measured
    assert "SIGSEGV" in (by_name["crash"].reason or "")
    assert "no message" in (by_name["garbage"].reason or "")
    assert "the loss is nan" in (by_name["nan"].reason or "")
    assert "timed out" in (by_name["hang"].reason or "")
    for name in ("crash", "garbage", "nan", "hang"):
        assert by_name[name].status == "failed"
        assert Path(by_name[name].log or "").exists()
        assert by_name[name].relative is None
    assert by_name["unavailable"].status == "unavailable"
    assert by_name["unavailable"].log is None
    assert by_name["unavailable"].remedy


def test_the_study_is_saved_after_each_part_and_logs_go_when_nothing_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved: list[int] = []
    save = Store.save

    def counting(self: Store, document: StudyDocument) -> Path:
        samples = document.results[0].samples
        saved.append(len(samples.step_seconds) if samples else 0)
        return save(self, document)

    monkeypatch.setattr(Store, "save", counting)
    run("fake", store=Store(tmp_path))
    # Twice in the last replicate: before and after its workers count native allocations.
    assert saved == [0, 1, 2, 2, 2]
    assert not list(tmp_path.glob("logs/*"))


def test_strict_measures_nothing_when_something_is_missing() -> None:
    listener = Listener()
    study = Study(engines=("fake", "fake+unavailable"), **FAST)
    with pytest.raises(StrictlyUnavailable, match="fake\\+unavailable/cpu"):
        run_study(study, listener, store=None, strict=True)
    assert not any("round" in stage for stage in listener.stages)


def test_what_a_gpu_lacks_is_an_unavailable_row() -> None:
    result = run("fake+unavailable", devices=("cuda",), parity=False, processes=1)
    assert result.results[0].cell == "fake+unavailable/cuda"
    assert result.results[0].status == "unavailable"
    assert result.results[0].remedy


def test_the_study_repeats_itself_from_its_toml() -> None:
    fields = FAST | {"learning_rate": 0.5, "processes": 1, "rounds": 1}
    result = run("fake", **fields)
    again = msgspec.toml.decode(result.study.encode(), type=Study)
    assert again == Study(engines=("fake",), **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"engines": ("torhc",)}, "did you mean 'torch'"),
        ({"engines": ("torch+compiled",)}, "did you mean 'compile'"),
        ({"engines": ("torch+compile+compile",)}, "names a variant twice"),
        ({"engines": ("fake",), "model": "lennet"}, "did you mean 'lenet'"),
        ({"engines": ("fake",), "optimizer": "momentun"}, "did you mean 'momentum'"),
        ({"engines": ("fake",), "baseline": "torch/cpu"}, "unknown cell"),
        ({"engines": ("fake",), "batch_size": 2001}, "2001"),
        ({"engines": ("fake",), "data": "/no/such/folder"}, "/no/such/folder"),
        ({"engines": ("fake",), "devices": ("cpu",), "prices": {"cuda": 1.0}}, "device with a price"),
        ({"engines": ("fake",), "precision": "tf32"}, "tf32"),
        ({"engines": ("fake",), "workers": 2}, "--workers is for an input pipeline"),
        ({"engines": ("fake",), "augment": True}, "--augment is for an input pipeline"),
    ],
)
def test_bad_input_is_found_before_anything_is_started(fields: dict[str, Any], message: str) -> None:
    listener = Listener()
    with pytest.raises(BadInput, match=message):
        run_study(Study(**(FAST | fields)), listener, store=None)
    assert set(listener.stages) <= {"preparing data"}


def test_an_unwritable_results_folder_is_found_before_measuring(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    listener = Listener()
    with pytest.raises(BadInput, match="cannot write results"):
        run_study(Study(engines=("fake",), **FAST), listener, store=Store(tmp_path / "file"))
    assert listener.stages == []


def test_cells_that_do_not_fit_in_memory_run_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "available_memory", lambda: 100 << 20)
    listener = Listener()
    result = run("fake", "fake+slow", "fake", listener=listener, parity=False)
    assert any("3 groups" in text for text in result.warnings)
    assert all(r.status == "ok" and r.relative for r in result.results)


def test_caveats_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "usable_threads", lambda: 1)
    listener = Listener()
    with only_study_here():
        result = run("fake", "fake", listener=listener, threads=2, target=1e-6)
    text = "\n".join(result.warnings)
    assert "another study" in text
    assert "2 threads on 1 usable cores" in text
    assert "was not reached" in text
    assert listener.warnings == result.warnings


def test_the_budget_bounds_explicit_rounds() -> None:
    result = run("fake", rounds=10_000, steps=200, budget=1.0, processes=2)
    assert any("budget of 1 s" in text for text in result.warnings)
    assert result.results[0].measured


def test_prices_give_cost_relative_to_the_baseline() -> None:
    slow = three_cells().result("fake+slow/cpu")
    assert slow.cost is not None
    assert slow.epoch_seconds is not None
    assert slow.cost.dollars_per_epoch == pytest.approx(slow.epoch_seconds / 1000)
    assert slow.cost.relative == pytest.approx(2.0, rel=0.2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_prints_and_saves_what_is_finished(number: int, folder: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "polybench",
        "compare",
        "--engines",
        "fake,fake+slow",
        "--data",
        str(folder),
        "--batch-size",
        "16",
        "--format",
        "json",
    ]
    options = ["--results", str(tmp_path), "--rounds", "100000", "--budget", "1h", "--processes", "3"]
    process = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Where tests run in the background, the shell has told all its children to ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - no threads here
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "round 3" in line:
            break
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    document = from_json(out.encode())
    assert {result.status for result in document.results} == {"interrupted"}
    assert all(result.measured for result in document.results)
    assert json.loads((tmp_path / f"{document.id}.json").read_text())["id"] == document.id


def test_idle_workers_sleep(tmp_path: Path) -> None:
    with WorkerProcess({}, tmp_path / "log") as worker:
        worker.ask(Load(ENGINES["fake"].factory), Loaded, 60.0)
        before = cpu_seconds(worker.pid)
        time.sleep(1.0)
        assert cpu_seconds(worker.pid) - before < 0.02


def test_counts_once_after_everything_timed_and_adds_up_the_collector() -> None:
    result = three_cells().result("fake/cpu")
    assert result.allocations.host == ALLOCATED
    assert result.allocations.device is None
    assert result.gc.seconds_per_step == pytest.approx(COLLECTION_SECONDS)
    assert result.gc.full_sweeps is not None
    memory = result.memory
    assert memory.peak_rss_bytes is not None
    assert memory.baseline_rss_bytes is not None
    assert memory.peak_rss_bytes >= memory.baseline_rss_bytes > 0
    assert memory.rss_anon_bytes is not None
    assert memory.rss_file_bytes is not None


def test_what_cannot_be_counted_is_a_warning_and_empty() -> None:
    result = run("fake+uncountable", processes=1).result("fake+uncountable/cpu")
    assert result.status == "ok"
    assert result.allocations.host is None
    assert any("the fake profiler does not start" in text for text in result.warnings)


def test_without_metrics_only_times_and_the_peak_are_there() -> None:
    result = run("fake", processes=1, metrics=False).result("fake/cpu")
    assert result.measured
    assert result.allocations.host is None
    assert result.memory.rss_anon_bytes is None
    assert result.memory.peak_rss_bytes is not None


def test_with_a_pipeline_time_splits_and_its_parts_are_timed_alone() -> None:
    pipeline: dict[str, Any] = {"input": "pipeline", "augment": True, "threads": 1}
    document = run("fake", "reference", processes=1, batch_size=100, **pipeline)
    result = document.result("fake/cpu")
    assert (result.workload.input, result.workload.workers, result.workload.augment) == ("pipeline", 1, True)
    assert (document.settings.workers, document.settings.augment) == (1, True)
    assert result.samples is not None
    assert result.samples.kind == "block"
    assert result.pipeline is not None
    assert result.pipeline.waiting_seconds_per_step == pytest.approx(WAITING_SECONDS)
    assert result.pipeline.compute_seconds_per_step == pytest.approx(STEP_SECONDS, rel=0.2)
    assert result.pipeline.pipeline_samples_per_second == pytest.approx(100 / DRAWING_SECONDS)
    assert result.pipeline.training_samples_per_second == pytest.approx(100 / STEP_SECONDS, rel=0.2)
    missing = document.result("reference/cpu")
    assert (missing.status, missing.remedy) == ("unavailable", "use --input preload")


@pytest.mark.slow
def test_a_real_pipeline_gives_identical_training_and_is_timed() -> None:
    """TensorFlow's; PyTorch's is in test_pinning.py, and all engines' are in tests/engines."""
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("tensorflow is not installed")
    (result,) = run("tf", processes=1, rounds=1, **REAL_PIPELINE).results
    assert_its_pipeline_is_timed(result)


def assert_its_pipeline_is_timed(result: Result) -> None:
    assert (result.status, result.parity.status) == ("ok", "pass"), result
    pipeline, seconds = result.pipeline, result.step_seconds
    assert pipeline is not None
    assert seconds is not None
    assert pipeline.waiting_seconds_per_step is not None
    assert pipeline.compute_seconds_per_step is not None
    assert pipeline.waiting_seconds_per_step > 0
    whole = pipeline.waiting_seconds_per_step + pipeline.compute_seconds_per_step
    assert whole == pytest.approx(seconds.mean)
    assert pipeline.pipeline_samples_per_second is not None
    assert pipeline.training_samples_per_second is not None


def test_cells_that_do_not_fit_into_memory_together_are_paced_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "available_memory", lambda: 1)
    listener = Listener()
    result = run(
        "fake+slow",
        "fake",
        processes=1,
        steps=None,
        rounds=None,
        budget=4.0,
        batch_size=10,
        listener=listener,
    )
    slow, fast = (cell.samples.step_seconds[0] for cell in result.results if cell.samples)
    assert any("2 groups" in warning for warning in listener.warnings)
    # Both have half of the budget: steps that are half as long make blocks of twice as many.
    assert len(fast[0]) == pytest.approx(2 * len(slow[0]), rel=0.25)
    assert result.settings.steps_per_round is None


def test_precisions_are_compared_in_one_table() -> None:
    result = run("fake", precision=("fp32", "bf16"), processes=1, rounds=1)
    assert [r.cell for r in result.results] == ["fake/cpu", "fake/cpu/bf16"]
    other = result.results[1].relative
    assert other is not None
    assert (other.baseline, result.settings.precision) == ("fake/cpu", "fp32,bf16")


def test_the_heap_is_the_studys_and_a_variant_may_have_the_systems() -> None:
    result = run("fake", "fake+systemheap", processes=1, rounds=1)
    kept, system = (cell.versions["environment"]["GLIBC_TUNABLES"] for cell in result.results)
    assert "trim_threshold" in kept
    assert "arena_max=1" in kept
    assert "trim_threshold" not in system
    assert result.settings.heap == "keep"
    assert result.results[0].disturbance.minor_faults_per_step is not None
    assert run("fake", heap="system", processes=1, rounds=1).settings.heap == "system"


def test_an_allocator_that_is_not_installed_is_an_unavailable_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    plain, *preloaded = run("fake", "fake+jemalloc", "fake+jemalloc", processes=1, rounds=1).results
    assert plain.measured
    assert [row.status for row in preloaded] == ["unavailable"] * 2
    assert preloaded[0].remedy == "apt-get install libjemalloc2"
